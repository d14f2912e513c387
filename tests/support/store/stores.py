"""Small stores, whose files have borders that tests cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import Clock, ManualClock
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record import Host

SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200
STORE_HOST = Host.parse("10.0.0.2:10911")
# An index whose files are full soon, and small enough to be copied by the thousand.
SMALL_INDEX = {"index_slot_count": 8, "index_entry_count_max": 16}

OpenStore = Callable[..., MessageStore]


def store_in(
    folder: str | Path,
    clock: Clock | None = None,
    flush: FlushDiskType | str = FlushDiskType.ASYNC_FLUSH,
    /,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    queue_file_bytes: int = QUEUE_FILE_BYTES,
    **settings: Any,
) -> MessageStore:
    """Returns a store that is not open yet; `settings` are more of its configuration."""
    sizes = segment_bytes, queue_file_bytes
    config = StoreConfig(Path(folder), *sizes, FlushDiskType(flush), **settings)
    return MessageStore(config, clock or ManualClock(), STORE_HOST)


@contextmanager
def opened(folder: Path, clock: Clock | None = None, **settings: Any) -> Iterator[MessageStore]:
    """Yields an open store with a small index; its end is a crash."""
    store = store_in(folder, clock, **SMALL_INDEX | settings)
    store.open()
    try:
        yield store
    finally:
        crash(store)


@pytest.fixture
def clock() -> ManualClock:
    """Returns a clock that advances only on request."""
    return ManualClock()


@pytest.fixture
def new_store(tmp_path: Path, clock: ManualClock) -> Iterator[OpenStore]:
    """Yields a factory of stores over one directory; open stores are closed at the end."""
    made: list[MessageStore] = []

    def build(flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH, **settings: Any) -> MessageStore:
        made.append(store_in(tmp_path, clock, flush, **settings))
        return made[-1]

    yield build
    for store in made:
        store.close()


@pytest.fixture
def open_store(new_store: OpenStore) -> OpenStore:
    """Returns a function that opens a store of `new_store`."""

    def build(*given: Any, **settings: Any) -> MessageStore:
        store = new_store(*given, **settings)
        store.open()
        return store

    return build


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    """Returns an open store."""
    return open_store()


def crash(store: MessageStore) -> None:
    """Releases the directory without any step of a clean stop."""
    store._release()
