"""A broker of ours, and a process of RocketMQ's SDK for Python."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.drivers import Driver
from tests.interop.rocketmq import TOP
from tests.unit.compatibility import rpcs_of

PYTHON = TOP / ".interop" / "python-sdk" / "bin" / "python"


@pytest.fixture(autouse=True, scope="session")
def _jars() -> None:
    """Checks for the SDK; these tests need no jars."""
    if not PYTHON.exists():
        pytest.fail("RocketMQ's SDK for Python is not here: run `make interop`", pytrace=False)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """Yields a broker of this test, which has answered each RPC that the table names for it."""
    with LocalBroker(http_port=0) as started:
        yield started
        # The broker does not count streams; the SDK gets checks of transactions by this one.
        if named := rpcs_of(request.node.nodeid) - {"Telemetry"}:
            assert named <= answered_rpcs(started)


def answered_rpcs(broker: LocalBroker) -> set[str]:
    """Returns the methods that were answered with OK since the broker's start."""
    with build_opener(ProxyHandler({})).open(f"http://{broker.http_endpoint}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    counted = (
        r'rocketmq_rpc_latency_milliseconds_count.*request_code="(\w+)",response_code="success"'
    )
    found = [each[1] for each in map(re.compile(counted).match, lines) if each]
    return {"".join(word.title() for word in name.split("_")) for name in found}


@pytest.fixture
def python_sdk(tmp_path: Path) -> Iterator[Driver]:
    """Yields a process of the SDK, whose home has its logs."""
    program = str(Path(__file__).with_name("python_sdk.py"))
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    command = [str(PYTHON), program]
    with Driver(command, tmp_path / "python-sdk.log", environment) as process:
        yield process
