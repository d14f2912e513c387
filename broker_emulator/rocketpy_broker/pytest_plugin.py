"""The pytest fixtures `rocketpy_broker` and `rocketpy_topic`, found through the entry point
`pytest11`.

After each test that uses the broker, what the test has left in it is removed. Holds no state.
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

    After each test that uses it everything is removed that the test has left: topics, consumer
    groups with their dead letters, messages that wait, open transactions. What fixtures of a wider
    scope have made before the test stays.
    """
    from rocketpy_broker import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def _rocketpy_left_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Removes what a test leaves in `rocketpy_broker`."""
    if BROKER not in request.fixturenames:
        yield
        return
    broker: LocalBroker = request.getfixturevalue(BROKER)
    kept, pid = broker._contents(), os.getpid()  # noqa: SLF001 (of the same package)
    yield
    # A test may have forked, and its child be on the way out.
    if os.getpid() == pid:
        broker._clear(kept)  # noqa: SLF001 (as above)


@pytest.fixture
def rocketpy_topic(rocketpy_broker: LocalBroker) -> str:
    """Returns the name of a topic of this test's own; it has eight queues, and is deleted afterwards."""
    topic = f"test-{uuid.uuid4().hex}"
    rocketpy_broker.create_topic(topic)
    return topic
