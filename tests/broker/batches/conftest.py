"""A batch to write, and a store that accepts a limited number of appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.batches.batch_use import limited_room, one_by_one
from tests.support.broker.clients.batch_writer import Job
from tests.support.broker.running_broker import RunningBroker

RoomFor = Callable[[int | None], None]


@pytest.fixture
def room_for() -> Iterator[RoomFor]:
    """Yields a function that sets how many more appends the store accepts; None: any number.

    A record is an append.
    """
    with one_by_one(), limited_room() as room:

        def give(count: int | None) -> None:
            room.left = count

        yield give


@pytest.fixture
async def job(running: RunningBroker) -> Job:
    """Returns a job for a topic of the running broker."""
    await running.create_topic("T")
    return Job(running)
