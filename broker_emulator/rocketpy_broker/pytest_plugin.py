"""The pytest fixtures `rocketpy_broker` and `rocketpy_topic`, found through the entry point
`pytest11`.

Holds no state.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketpy_broker.local import LocalBroker


@pytest.fixture(scope="session")
def rocketpy_broker() -> Iterator[LocalBroker]:
    """A LocalBroker for the whole test session, on a free port, with a temporary store."""
    from rocketpy_broker import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def rocketpy_topic(rocketpy_broker: LocalBroker) -> Iterator[str]:
    """The name of a topic of this test's own; it has eight queues, and is deleted afterwards."""
    topic = f"test-{uuid.uuid4().hex}"
    rocketpy_broker.create_topic(topic)
    yield topic
    if topic in rocketpy_broker.topics():
        rocketpy_broker.delete_topic(topic)
