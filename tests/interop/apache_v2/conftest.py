"""A broker of ours, and a process of RocketMQ's SDK for Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.drivers import Driver
from tests.interop.rocketmq import TOP

PYTHON = TOP / ".interop" / "python-sdk" / "bin" / "python"


@pytest.fixture(autouse=True, scope="session")
def _jars() -> None:
    """Checks for the SDK; these tests need no jars."""
    if not PYTHON.exists():
        pytest.fail("RocketMQ's SDK for Python is not here: run `make interop`", pytrace=False)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """Yields a broker of this test."""
    with LocalBroker() as started:
        yield started


@pytest.fixture
def python_sdk(tmp_path: Path) -> Iterator[Driver]:
    """Yields a process of the SDK, whose home has its logs."""
    program = str(Path(__file__).with_name("python_sdk.py"))
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    command = [str(PYTHON), program]
    with Driver(command, tmp_path / "python-sdk.log", environment) as process:
        yield process
