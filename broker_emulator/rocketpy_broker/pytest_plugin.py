"""The pytest fixtures `rocketpy_broker`, its addresses, and `rocketpy_topic`.

pytest finds them through the entry point `pytest11`. After each test that uses the broker, the
plugin removes what the test has left in it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketpy_broker.client.contents import Contents
    from rocketpy_broker.embedded.local_broker import LocalBroker

BROKER = "rocketpy_broker"


class _InitialContents:
    """The contents that a broker keeps after a test."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.contents = self.found()

    def found(self) -> Contents:
        """Returns the broker's contents; a broker that has ended has none."""
        from rocketpy_broker import LocalBrokerError
        from rocketpy_broker.client.contents import Contents

        try:
            return self.broker._contents()  # noqa: SLF001 (of the same package)
        except LocalBrokerError:
            return Contents()


_INITIAL = pytest.StashKey[_InitialContents]()


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, None]:
    """Notes what fixtures of a wider scope than `function` create, so that it stays.

    A test may request such a fixture, and the broker, at any time.
    """
    stash = request.config.stash
    kept = stash.get(_INITIAL, None)
    is_wide = fixturedef.scope != "function"
    before = kept.found() if kept is not None and is_wide else None
    outcome = yield
    if fixturedef.argname == BROKER and outcome.excinfo is None:
        stash[_INITIAL] = _InitialContents(outcome.get_result())
    elif is_wide and _INITIAL in stash:
        kept = stash[_INITIAL]
        kept.contents |= kept.found() if before is None else kept.found() - before


@pytest.fixture(scope="session")
def rocketpy_broker() -> Iterator[LocalBroker]:
    """Yields a LocalBroker for the whole test session, on a free port, with a temporary store.

    After each test that uses it, the plugin removes the contents that the test has left. These are
    topics, consumer groups with dead letters, delayed messages and open transactions. Contents that
    fixtures of a wider scope created before the test stay.
    """
    from rocketpy_broker import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketpy_endpoint(rocketpy_broker: LocalBroker) -> str:
    """Returns the gRPC address of `rocketpy_broker`, for the connector and RocketMQ 5's SDKs."""
    return rocketpy_broker.endpoint


@pytest.fixture(scope="session")
def rocketpy_name_server(rocketpy_broker: LocalBroker) -> str:
    """Returns the name server of `rocketpy_broker`, for RocketMQ's classic clients and tools."""
    return rocketpy_broker.name_server


@pytest.fixture(autouse=True)
def _rocketpy_left_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Removes the contents that a test leaves in `rocketpy_broker`."""
    pid = os.getpid()
    if BROKER in request.fixturenames:
        request.config.stash[_INITIAL] = _InitialContents(request.getfixturevalue(BROKER))
    yield
    # A child that the test forked may reach this line, too. A test that has requested the broker
    # by `request.getfixturevalue` has its name only now.
    kept = request.config.stash.get(_INITIAL, None)
    if os.getpid() == pid and BROKER in request.fixturenames and kept is not None:
        kept.broker._clear(kept.contents)  # noqa: SLF001 (of the same package)


@pytest.fixture
def rocketpy_topic(rocketpy_broker: LocalBroker) -> str:
    """Returns the name of a new topic with eight queues, which is deleted after the test."""
    topic = f"test-{uuid.uuid4().hex}"
    rocketpy_broker.create_topic(topic)
    return topic
