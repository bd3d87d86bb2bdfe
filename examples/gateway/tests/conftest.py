"""What the tests of the running gateway share."""

import time

import pytest
from harness import HERE, Gateway


@pytest.fixture
def gateway():
    gateway = Gateway("--policy", str(HERE / "policy.yaml"))
    yield gateway
    gateway.close()


@pytest.fixture
def slept(monkeypatch):
    """What the clients would have slept, in seconds."""
    record = []
    monkeypatch.setattr(time, "sleep", record.append)
    return record
