"""Cases of kind `price`: what a usage costs, line by line, and the worst case of a request."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed


def run(case: Any) -> None:
    if "litellm" in case:
        price = quota.PriceList.litellm(case["litellm"]).get(case["model"])
        if "listed" in case:
            return expect("listed", case["listed"], price is not None)
        assert price is not None
    else:
        try:
            price = quota.Price(case["price"])
        except quota.PolicyError as error:
            return expect("error", case.get("error"), error.errors[0].message)
    if "error" in case:
        raise Failed("built, where an error was wanted")
    if "ask" in case:
        return expect("worst_case_usd", case["worst_case_usd"], f"{price.worst_case(**case['ask']):f}")
    charge(price, case)


def charge(price: quota.Price, case: Any) -> None:
    outcome = quota.Outcome.of_answer(case.get("status", 200), case["body"], dialect=case["dialect"])
    if outcome.state not in ("final", "not_run"):
        raise Failed(f"{outcome}")
    cost = price.cost(outcome.usage or quota.Usage(requests=0))
    expect("cost_usd", case["cost_usd"], f"{cost.usd:f}")
    expect("fallback", case.get("fallback", False), cost.fallback)
    expect("unpriced", case.get("unpriced", False), cost.unpriced)
    if "lines" in case:
        expect("lines", case["lines"], [line(one) for one in cost.lines])


def line(found: quota.CostLine) -> dict[str, Any]:
    shown: dict[str, Any] = {"item": found.item, "units": found.units, "pico": found.pico, "usd": f"{found.usd:f}"}
    return shown | ({"fallback": True} if found.fallback else {})


def expect(what: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Failed(f"{what}: got {found}, wanted {wanted}")
