"""The pytest fixtures `rocketpy_broker`, its addresses, and `rocketpy_topic`.

pytest finds them through the entry point `pytest11`. After each test that uses the broker, the
plugin removes what the test has left in it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketpy_broker.embedded.local_broker import LocalBroker

BROKER = "rocketpy_broker"


@pytest.fixture(scope="session")
def rocketpy_broker() -> Iterator[LocalBroker]:
    """Yields a LocalBroker for the whole test session, on a free port, with a temporary store.

    After each test that uses it, the plugin removes the contents that the test has left: topics,
    consumer groups with dead letters, delayed messages and open transactions. Contents that
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
    if BROKER not in request.fixturenames:
        yield
        return
    broker: LocalBroker = request.getfixturevalue(BROKER)
    kept, pid = broker._contents(), os.getpid()  # noqa: SLF001 (of the same package)
    yield
    # A child that the test forked may reach this line, too.
    if os.getpid() == pid:
        broker._clear(kept)  # noqa: SLF001 (as above)


@pytest.fixture
def rocketpy_topic(rocketpy_broker: LocalBroker) -> str:
    """Returns the name of a new topic with eight queues, which is deleted after the test."""
    topic = f"test-{uuid.uuid4().hex}"
    rocketpy_broker.create_topic(topic)
    return topic
