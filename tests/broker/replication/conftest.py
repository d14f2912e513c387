"""A master's store that accepts a limited number of appends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.batches.conftest import RoomFor, room_on_disk


@pytest.fixture
def room_for() -> Iterator[RoomFor]:
    """Yields a function that limits the appends of the master; its slave has room for copies."""
    with room_on_disk("*/master/commitlog/*") as give:
        yield give
