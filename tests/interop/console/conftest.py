"""A browser, and brokers with a console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketpy_broker import LocalBroker
from tests.interop.console.chromium import Chromium, chromium
from tests.interop.console.sample import sample_broker


@pytest.fixture(autouse=True, scope="session")
def _jars() -> None:
    """Takes the place of the fixture for RocketMQ's jars, which these tests do not need."""


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Chromium]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(_chromium: Chromium) -> Chromium:
    """Returns the browser as it is after its start, but for the files that it has kept."""
    _chromium.forget()
    _chromium.set_width(1280)
    _chromium.set_theme("light")
    return _chromium


@pytest.fixture(scope="session")
def sample() -> Iterator[LocalBroker]:
    """Yields a broker that tests read and do not change."""
    with sample_broker() as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    """Yields a broker for one test."""
    with LocalBroker(http_port=0) as broker:
        yield broker
