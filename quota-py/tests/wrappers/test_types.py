"""The wrappers as a type checker sees them, and what is imported with what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Each line with `# error` is refused by a type checker, and no other.
TYPED = """
from anthropic import Anthropic, AsyncAnthropic
from fastapi import FastAPI
from openai import AsyncAzureOpenAI, AsyncOpenAI, OpenAI
from typing_extensions import assert_type

import quota
import quota.anthropic
import quota.asgi
import quota.litellm
import quota.openai

gate = quota.Gate(quota.Policy.from_yaml("tenants: {}"))
who = quota.Principal(tenant="acme")
assert_type(quota.openai.wrap(OpenAI(), gate, who), OpenAI)
assert_type(quota.openai.wrap(AsyncOpenAI(), gate, lambda: who), AsyncOpenAI)
assert_type(quota.openai.wrap(AsyncAzureOpenAI(), gate, who), AsyncAzureOpenAI)
assert_type(quota.anthropic.wrap(Anthropic(), gate, who), Anthropic)
assert_type(quota.anthropic.wrap(AsyncAnthropic(), gate, who, unmetered=["/v1/messages/batches"]), AsyncAnthropic)
quota.openai.wrap(Anthropic(), gate, who)  # error
quota.anthropic.wrap(Anthropic(), gate, "acme")  # error
app = FastAPI()
app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate, routes={"/chat": "openai_chat"}, principal=lambda scope: who)
app.add_middleware(quota.asgi.QuotaMiddleware)  # error
app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate, routes={"/chat": "openai"})  # error
hook = quota.litellm.QuotaHook(gate, principal=lambda auth: quota.Principal(tenant=auth.team_id or "none"))
quota.litellm.QuotaHook(gate, principal=who)  # error
"""

#: LiteLLM's own modules take minutes to look at, and all that is used of them is one class.
CONFIG = """
[mypy]
strict = True

[mypy-litellm.*]
follow_imports = skip

[mypy-quota.litellm,quota_hook,strict_hook]
disallow_subclassing_any = False
"""

HOSTS = {"anthropic", "fastapi", "httpx", "litellm", "openai", "starlette"}


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The configuration, and what was found out before; as old as the environment."""
    directory = tmp_path_factory.mktemp("mypy")
    (directory / "mypy.ini").write_text(CONFIG)
    return ["--config-file", str(directory / "mypy.ini"), "--cache-dir", str(Path(sys.prefix) / "mypy")]


def mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=250)


def test_the_wrappers_are_typed_strictly(tmp_path: Path, common: list[str]) -> None:
    done = mypy(*common, "-p", "quota", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_these_tests_are_typed_strictly(common: list[str]) -> None:
    done = mypy(*common, ".", cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_type_checker_finds_misuse(tmp_path: Path, common: list[str]) -> None:
    (tmp_path / "use.py").write_text(TYPED)
    done = mypy(*common, "use.py", cwd=tmp_path)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wanted = {number for number, line in enumerate(TYPED.splitlines(), 1) if line.endswith("# error")}
    assert found == wanted, done.stdout


@pytest.mark.parametrize(("module", "brings"), [("quota", set()), ("quota.asgi", set()), ("quota.openai", {"openai"})])
def test_hosts_are_imported_by_their_own_wrapper_alone(module: str, brings: set[str]) -> None:
    code = f"import sys, {module}; print(*({HOSTS!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= brings | ({"httpx"} if brings else set())
