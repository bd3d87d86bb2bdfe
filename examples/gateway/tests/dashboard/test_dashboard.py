"""The dashboard in a real browser, in front of a running gateway."""

import contextlib
import os
import pathlib
import shutil
import sys

import httpx
import openai
import pytest
from playwright.sync_api import expect, sync_playwright

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from harness import ADMIN, MESSAGES, REPOSITORY, Gateway  # noqa: E402

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]
MARKUP = '<img src=x onerror="document.title=String(1)"><script>document.title="2"</script>'
PICTURES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "dashboard"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def gateway():
    gateway = Gateway("--policy", str(HERE / "policy.yaml"))
    yield gateway
    gateway.close()


class Page:
    """A page of its own with what it complained about and asked others for."""

    def __init__(self, browser, gateway, **options):
        self.context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
        self.page = self.context.new_page()
        self.wrong, self.elsewhere = [], []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda asked: self.elsewhere.append(asked.url) if not asked.url.startswith((gateway.url, "data:")) else None)
        self.page.goto(gateway.url)

    def enter(self, key=ADMIN):
        self.page.get_by_label("Admin key").fill(key)
        self.page.get_by_role("button", name="Watch").click()

    def row(self, table, *texts):
        rows = self.page.locator(f"#{table} tbody tr")
        for text in texts:
            rows = rows.filter(has_text=text)
        return rows

    def cells(self, table, *texts):
        """A row's texts by its columns' names."""
        names = self.page.locator(f"#{table} thead th").all_inner_texts()
        return dict(zip([name.rstrip(" ▲▼") for name in names], self.row(table, *texts).first.locator("td").all_inner_texts()))

    def shows(self, table, wanted, *texts):
        """Waits until a row shows what is wanted: the figures come once a second."""
        for name, value in wanted.items():
            at = [text.rstrip(" ▲▼") for text in self.page.locator(f"#{table} thead th").all_inner_texts()].index(name)
            expect(self.row(table, *texts).first.locator("td").nth(at)).to_have_text(value)

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


@contextlib.contextmanager
def opened(browser, gateway, **options):
    page = Page(browser, gateway, **options)
    try:
        yield page
    finally:
        page.context.close()


def chat(client, model="sim-chat"):
    return client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=10)


def traffic(gateway):
    """Allowed, refused, unresolved and open requests; gives the id of one allowed and the open stream."""
    with gateway.client() as client:
        ids = [chat(client)._request_id for _ in range(3)]
        chat(client, "dear")
        chat(client, "sim-no-usage")
        with pytest.raises(openai.PermissionDeniedError):
            chat(client, "<b>no such model</b>")
    with gateway.client("markup") as client:
        chat(client)
    for key, error in [("slow", openai.RateLimitError), ("poor", openai.APIStatusError)]:
        with gateway.client(key) as client:
            chat(client)
            for _ in range(2):
                with pytest.raises(error):
                    chat(client)
    return ids


def test_figures_are_shown_and_follow_what_happens(browser, gateway):
    ids = traffic(gateway)
    with opened(browser, gateway) as page, gateway.client() as client:
        page.enter()
        # Three requests of 7 tokens in at 1 and 10 out at 2 dollars a million, one at ten times as much, one without usage.
        page.shows("tenants", {"Allowed": "5", "Refused": "0", "Unresolved": "1", "Charged USD": "0.000351"}, "acme")
        page.shows("tenants", {"Allowed": "1", "Refused": "2"}, "slow")
        page.shows("tenants", {"Allowed": "0", "Charged USD": "0"}, "idle")
        page.shows("refusals", {"Tenant": "poor", "Model": "sim-chat", "Count": "2"}, "budget_exceeded")
        page.shows("refusals", {"Tenant": "slow", "Count": "2"}, "request_rate_exceeded")
        # A model that the policy does not name has no line of its own, and its refusals belong to nobody.
        page.shows("refusals", {"Tenant": "—", "Model": "—", "Count": "1"}, "model_")
        page.shows("unresolved", {"Tenant": "acme", "Cause": "no usage", "Model": "sim-no-usage"})
        page.shows("limits", {"Hard": "0.00005", "Used": "0.000027", "Held": "0"}, "tenant:poor", "daily_budget_usd")
        page.shows("lanes", {"Allowed": "8", "Waiting": "0", "Wait": "0 ms"}, "interactive")
        # A quarter of what two replicas run is open; what was served is input and four times the output.
        page.shows("pools", {"In flight": "0 of 8", "Kept tokens": "0 of 76,000", "Waiting": "0"}, "sim")
        page.shows("turns", {"Lane": "interactive", "Pool": "sim", "Turns": "3", "Served": "141"}, "acme")
        expect(page.page.locator(".tile", has_text="refused").locator("b")).to_have_text("5")
        # What happens while it is looked at: a stream is open, holds, and settles.
        before = page.cells("limits", "tenant:acme", "max_inflight")
        stream = client.chat.completions.create(model="sim-slow", messages=MESSAGES, max_tokens=1000, stream=True)
        assert before["Used"] == "0"
        page.shows("limits", {"Used": "1", "Held": "1"}, "tenant:acme", "max_inflight")
        page.shows("tenants", {"Open": "1"}, "acme")
        page.shows("pools", {"In flight": "1 of 8"}, "sim")
        page.picture("light")
        list(stream)
        page.shows("tenants", {"Open": "0", "Allowed": "6", "Settled": "5"}, "acme")
        page.page.get_by_role("tab", name="Tenant × model").click()
        page.shows("pairs", {"Tenant": "acme", "Allowed": "3", "Tokens in": "21", "Tokens out": "30"}, "acme", "sim-chat")
        # A click on a column sorts by it, first with the most at the top.
        page.page.locator("#pairs").get_by_role("button", name="Charged USD").click()
        assert page.page.locator("#pairs tbody tr").first.inner_text().split("\t")[:2] == ["acme", "dear"]
        page.page.get_by_label("Filter").fill("slow")
        expect(page.page.locator("#limits tbody tr")).to_have_count(1)
        page.page.get_by_label("Filter").fill("")
        assert (page.wrong, page.elsewhere) == ([], [])
        assert gateway.story(ids[0]) == ["admitted", "settled"]


def test_a_click_tells_a_requests_story(browser, gateway):
    ids = traffic(gateway)
    with opened(browser, gateway, color_scheme="dark") as page:
        page.enter()
        page.row("last", ids[0]).first.get_by_role("button").click()
        story = page.page.get_by_role("dialog")
        expect(story.get_by_role("heading", name=ids[0])).to_be_visible()
        chapters = story.locator("article")
        expect(chapters).to_have_count(2)
        expect(chapters.first.locator(".badge")).to_have_text("admitted")
        # The reservation of that moment: the limit, its amount, what was held.
        budget = chapters.first.locator("tr", has_text="daily_budget_usd").filter(has_text="tenant:acme").first
        assert "100" in budget.locator("td").all_inner_texts()
        expect(chapters.nth(1).locator(".badge")).to_have_text("settled")
        expect(chapters.nth(1).locator("dd", has_text="0.000027").first).to_be_visible()
        page.picture("story-dark")
        page.page.keyboard.press("Escape")
        expect(story).not_to_be_visible()
        page.picture("dark")
        page.page.get_by_label("refusals only").check()
        expect(page.row("last")).to_have_count(5)
        refused = page.row("last", "poor", "refused").first
        refused.get_by_role("button").click()
        expect(story.locator("article").locator(".badge")).to_have_text("refused")
        expect(story).to_contain_text("budget_exceeded")
        expect(story).to_contain_text("0.00005")
        assert (page.wrong, page.elsewhere) == ([], [])


def test_names_are_text(browser, gateway):
    traffic(gateway)
    with gateway.client("markup") as client:
        request_id = chat(client)._request_id
    with opened(browser, gateway) as page:
        page.enter()
        expect(page.page.locator("#tenants td").get_by_text(MARKUP, exact=True)).to_be_visible()
        expect(page.row("last", "<b>no such model</b>").first).to_be_visible()
        page.row("last", request_id).first.get_by_role("button").click()
        expect(page.page.get_by_role("dialog").locator("dd").get_by_text(MARKUP, exact=True).first).to_be_visible()
        assert page.page.locator("img, tbody b, dialog script, main script").count() == 0
        assert page.page.title() == "Quota gateway"
        assert (page.wrong, page.elsewhere) == ([], [])


def test_the_key_is_needed_and_can_be_forgotten(browser, gateway):
    with opened(browser, gateway) as page:
        for wrong, told in [("nobody", "does not know this key"), ("schlüssel", "printable ASCII")]:
            page.enter(wrong)
            expect(page.page.get_by_role("alert")).to_contain_text(told)
            expect(page.page.locator("main")).to_be_hidden()
        page.enter()
        expect(page.page.get_by_role("status")).to_have_text("live")
        # It is kept for the tab, and nowhere that outlives it.
        page.page.reload()
        expect(page.page.get_by_role("status")).to_have_text("live")
        assert page.page.evaluate("[localStorage.length, document.cookie, location.href]") == [0, "", f"{gateway.url}/"]
        page.page.get_by_role("button", name="Forget key").click()
        expect(page.page.locator("main")).to_be_hidden()
        assert page.page.evaluate("sessionStorage.length") == 0


def test_a_lost_connection_is_told_and_made_again(browser):
    gateway = Gateway("--policy", str(HERE / "policy.yaml"))
    try:
        with opened(browser, gateway) as page:
            page.enter()
            expect(page.page.get_by_role("status")).to_have_text("live")
            # Whoever watches does not keep the gateway from stopping: it ends with 0, long before it would cut anybody off.
            gateway.close()
            expect(page.page.get_by_role("status")).to_contain_text("connection lost")
            port = gateway.url.rsplit(":", 1)[1]
            gateway = Gateway("--policy", str(HERE / "policy.yaml"), "--listen", f"127.0.0.1:{port}")
            expect(page.page.get_by_role("status")).to_have_text("live", timeout=20_000)
    finally:
        if gateway.process.returncode is None:
            gateway.close()


def test_the_page_is_strict_and_holds_no_data(gateway):
    for path in ["/", "/dashboard.js", "/dashboard.css"]:
        answer = httpx.get(gateway.url + path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "acme" not in answer.text and ADMIN not in answer.text
    for key in [None, "test-acme"]:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        assert httpx.get(f"{gateway.url}/admin/dashboard/events", headers=headers).status_code == 401


def test_only_so_many_may_watch(gateway):
    headers = {"authorization": f"Bearer {ADMIN}"}
    with contextlib.ExitStack() as stack, httpx.Client(headers=headers, limits=httpx.Limits(max_connections=None)) as client:
        events = f"{gateway.url}/admin/dashboard/events"
        seats = [stack.enter_context(client.stream("GET", events)) for _ in range(16)]
        assert [seat.status_code for seat in seats] == [200] * 16
        full = client.get(events)
        assert (full.status_code, full.headers["retry-after"]) == (503, "10")
