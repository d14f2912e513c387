"""A store that accepts a limited number of appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.batch_use import limited_room, one_by_one

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
