"""A batch to write, and a store that accepts a limited number of appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.batches.batch_use import limited_room
from tests.support.broker.clients.batch_writer import Job
from tests.support.broker.running_broker import RunningBroker
from tests.support.store.disk_calls import LOG

RoomFor = Callable[[int | None], None]


@contextmanager
def room_on_disk(log: str) -> Iterator[RoomFor]:
    """Yields a function that sets how many more appends the disk accepts; None: any number."""
    with limited_room(log) as room:

        def give(count: int | None) -> None:
            room.left = count

        yield give


@pytest.fixture
def room_for() -> Iterator[RoomFor]:
    """Yields a function that limits the appends of every broker."""
    with room_on_disk(LOG) as give:
        yield give


@pytest.fixture
async def job(running: RunningBroker) -> Job:
    """Returns a job for a topic of the running broker."""
    await running.create_topic("T")
    return Job(running)
