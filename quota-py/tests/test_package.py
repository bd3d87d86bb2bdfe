"""The package as it is installed: from a wheel, typed, and the types as they are."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import quota
import quota.testing

TREE = Path(__file__).parents[1]

#: How long a tool may take: a machine that has much else to do needs several times the usual.
TOOL_S = 250

#: What mypy has found out before; as old as the environment.
CACHE = ("--cache-dir", str(Path(sys.prefix) / "mypy"))

FIVE_LINES = """
import asyncio, sys, quota
assert sys.argv[1] in quota.__file__, quota.__file__

async def main() -> None:
    gate = quota.Gate(quota.Policy.from_dict({"tenants": {"acme": {"rpm": 60, "models": ["small"]}}}))
    who = quota.Principal(tenant="acme")
    async with gate.acquire(who, quota.Request(model="small", text="Name three rivers.")) as lease:
        lease.sent()
        print(lease.settle({"prompt_tokens": 14, "completion_tokens": 31}).charged.tokens)

asyncio.run(main())
"""

# Each line with `# error` is refused by a type checker, and no other.
TYPED = """
# pyright: reportUnnecessaryComparison=true
from decimal import Decimal

import quota
from typing_extensions import assert_type
from quota.testing import ManualClock

policy = quota.Policy.from_yaml("tenants: {}")
gate = quota.Gate(policy, clock=ManualClock(), pools={"h200": quota.FixedPool(replicas=1, max_running=2)})
who = gate.authenticate("key")
decision = gate.admit(who, quota.Request(model="m"))
if decision.action == "allow" and decision.lease is not None:
    assert_type(decision.lease.settle({"prompt_tokens": 1}).cost_usd, Decimal)
decision.lease.settle({})  # error
if decision.action == "alow":  # error
    pass
quota.Gate(policy, ManualClock())  # error
quota.Request("m")  # error
quota.Principal(tenant=5)  # error
quota.count_tokens("x", tokenizer="gpt2")  # error
quota.Gate(policy, estimator=lambda request, tokenizer: len(request.texts))
quota.Gate(policy, estimator=lambda request: 1)  # error
quota.Gate(policy, journal=[])  # error
assert_type([line.usd for line in quota.Price({"input": 1}).cost({}).lines], list[Decimal])
gate.finalize({}, dialect="openai")  # error

async def main() -> None:
    assert_type(await gate.acquire(who, quota.Request(model="m")), quota.Lease)
    assert_type(await quota.Scheduler(capacity=1).arrive(tenant="a", now_ns=1), quota.Turn)
    async with gate.acquire(who, quota.Request(model="m")) as lease:
        assert_type(lease.waited_ms, int)
        gate.acquire(who, quota.Request(model="m")).settle({})  # error
    try:
        pass
    except quota.Refused as refused:
        assert_type(refused.retry_after_ms, int | None)
        assert_type(quota.REASONS[refused.code].status, int)
"""


def mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TOOL_S)


def test_everything_public_says_what_it_is() -> None:
    """`help` tells of each class and of each of its members."""
    named = [(name, getattr(module, name)) for module in (quota, quota.testing) for name in module.__all__]
    silent = [name for name, thing in named if (inspect.isclass(thing) or callable(thing)) and not thing.__doc__]
    for name, thing in named:
        if inspect.isclass(thing):
            members = {member: made for member, made in vars(thing).items() if not member.startswith("_")}
            fields = getattr(thing, "__annotations__", {})
            silent += [f"{name}.{member}" for member, made in members.items() if not made.__doc__ and member not in fields]
    assert silent == []
    assert "at once" in (quota.Gate.admit.__doc__ or "")
    assert str(inspect.signature(quota.Gate.admit)) == "(self, /, who, request)"


def test_it_is_imported_from_where_it_was_installed() -> None:
    assert TREE not in Path(quota.__file__).parents
    assert Path(quota.__file__).is_relative_to(sysconfig.get_paths()["platlib"])
    assert (Path(quota.__file__).parent / "py.typed").exists()


def test_the_stubs_are_what_is_there(tmp_path: Path) -> None:
    done = mypy("mypy.stubtest", "quota._native", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed_strictly(tmp_path: Path) -> None:
    """The wrappers of hosts, which need those, are checked by their own tests."""
    modules = ("-m", "quota", "-m", "quota.testing")
    done = mypy("mypy", "--strict", *CACHE, *modules, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_these_tests_are_typed_strictly() -> None:
    done = mypy("mypy", "--strict", *CACHE, "--exclude", "wrappers/", ".", "../benches", cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stdout + done.stderr


def pyright(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Pyright looks for packages in the environment that is active."""
    home = Path(sys.executable).parent
    active = os.environ | {"VIRTUAL_ENV": str(home.parent), "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pyright", *arguments]
    return subprocess.run(command, cwd=cwd, env=active, capture_output=True, text=True, timeout=TOOL_S)


def test_every_type_is_known_to_the_other_type_checker(tmp_path: Path) -> None:
    done = pyright("--verifytypes", "quota", "--ignoreexternal", "--outputjson", cwd=tmp_path)
    symbols = json.loads(done.stdout)["typeCompleteness"]["symbols"]
    unknown = {symbol["name"] for symbol in symbols if symbol["isExported"] and not symbol["isTypeKnown"]}
    # What it is derived from is LiteLLM's, which is not here.
    assert len(symbols) > 500 and unknown == {"quota.litellm.QuotaHook"}, done.stdout + done.stderr


def test_the_other_type_checker_finds_the_same_misuse(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(TYPED)
    done = pyright("--outputjson", "use.py", cwd=tmp_path)
    told = [fault for fault in json.loads(done.stdout)["generalDiagnostics"] if fault["severity"] == "error"]
    assert {fault["range"]["start"]["line"] + 1 for fault in told} == wanted_faults(), done.stdout


def test_these_tests_satisfy_the_other_type_checker() -> None:
    # The wrappers' hosts are not here.
    here = Path(__file__).parent
    files = [path.name for path in sorted(here.iterdir()) if path.suffix == ".py" or path.name == "corpus"]
    assert Path(__file__).name in files
    done = pyright(*files, "../benches", cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr


def wanted_faults() -> set[int]:
    return {number for number, line in enumerate(TYPED.splitlines(), 1) if line.endswith("# error")}


def test_a_type_checker_finds_misuse(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(TYPED)
    done = mypy("mypy", "--strict", *CACHE, "use.py", cwd=tmp_path)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == wanted_faults(), done.stdout


def test_the_wheel_works_in_an_environment_with_nothing_else(tmp_path: Path) -> None:
    """`QUOTA_WHEEL` names the wheel that is installed here."""
    wheel = Path(os.environ["QUOTA_WHEEL"]).resolve()
    assert "cp310-abi3" in wheel.name
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    if not python.exists():
        python = tmp_path / "venv/Scripts/python.exe"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, timeout=TOOL_S)
    run = [str(python), "-I", "-c", FIVE_LINES, str(tmp_path / "venv")]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "45", done.stderr
