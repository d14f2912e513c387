"""A store with small files, so that tests cross file borders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record import Host

SEGMENT_BYTES = 4096
QUEUE_FILE_BYTES = 200
STORE_HOST = Host.parse("10.0.0.2:10911")

OpenStore = Callable[..., MessageStore]


@pytest.fixture
def clock() -> ManualClock:
    """Returns a clock that advances only on request."""
    return ManualClock()


@pytest.fixture
def new_store(tmp_path: Path, clock: ManualClock) -> Iterator[OpenStore]:
    """Yields a factory of stores over one directory; open stores are closed at the end."""
    made: list[MessageStore] = []

    def build(
        flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH, **sizes: int
    ) -> MessageStore:
        config = StoreConfig(
            tmp_path,
            sizes.get("segment_bytes", SEGMENT_BYTES),
            sizes.get("queue_file_bytes", QUEUE_FILE_BYTES),
            flush_disk_type,
        )
        store = MessageStore(config, clock, STORE_HOST)
        made.append(store)
        return store

    yield build
    for store in made:
        store.close()


def crash(store: MessageStore) -> None:
    """Releases the directory without any step of a clean stop."""
    store._release()
