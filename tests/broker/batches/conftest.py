"""A store that takes so many appends and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store import message_store
from rocketpy_broker.store.message_store import MessageStore

RoomFor = Callable[[int | None], None]


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> RoomFor:
    """Lets the store take so many more appends, or any number; a record is an append."""
    append = MessageStore.append
    left: list[int | None] = [None]

    def counted(store: MessageStore, *arguments: object) -> object:
        if left[0] == 0:
            raise StoreClosedError("no room")
        left[0] = left[0] and left[0] - 1
        return append(store, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageStore, "append", counted)
    monkeypatch.setattr(message_store, "FRAME_BYTES", 1)

    def give(count: int | None) -> None:
        left[0] = count

    return give
