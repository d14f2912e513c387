"""Records at any offsets of a queue: present and whole ones are returned, all else is left out."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.readers.random_reader import RandomRead
from tests.support.blocks import bodies_of
from tests.support.store.messages import QUEUE, numbered, put_all
from tests.support.store.planted_faults import FIRST, UNIT_BYTES, flip, unit_of, write_at
from tests.support.store.stores import OpenStore

COUNT = 60


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    """Returns a store with COUNT messages over several segments and queue files."""
    opened = open_store()
    put_all(opened, numbered(COUNT))
    assert len(opened._log.files.segments) > 1
    return opened


def read(store: MessageStore, offsets: list[int], bytes_max: int = 1 << 20) -> RandomRead:
    return store.random_reader.read(QUEUE, np.array(offsets, np.int64), bytes_max)


def bodies(found: RandomRead) -> list[bytes]:
    return bodies_of(found.block.data.tobytes(), found.block.sizes)


def test_records_come_in_the_order_that_was_asked_for(store: MessageStore) -> None:
    offsets = [COUNT - 1, 0, 25, 7, 26, 8]
    found = read(store, offsets)
    assert found.count == len(offsets)
    assert bodies(found) == [b"message %d" % offset for offset in offsets]


def test_offsets_that_the_queue_has_not_are_left_out(store: MessageStore) -> None:
    found = read(store, [3, COUNT, COUNT + 1_000])
    assert (found.count, bodies(found)) == (3, [b"message 3"])
    found = read(store, [COUNT, COUNT + 1])
    assert (found.count, bodies(found)) == (2, [])


def test_s11_what_units_name_in_no_segment_is_left_out(store: MessageStore, tmp_path: Path) -> None:
    path = tmp_path / "consumequeue/TopicA/2" / FIRST
    write_at(path, 3 * UNIT_BYTES, struct.pack(">q", 1 << 40))
    assert bodies(read(store, [2, 3, 4])) == [b"message 2", b"message 4"]
    assert bodies(read(store, [3])) == []


def test_f05_damaged_records_are_left_out_and_told(store: MessageStore, tmp_path: Path) -> None:
    for number in (1, 3):
        offset, _ = unit_of(tmp_path, number)
        flip(tmp_path / "commitlog" / FIRST, offset + 90)
    assert bodies(read(store, [3])) == []
    assert store.statistics.corrupt_record_count == 1
    assert bodies(read(store, [3, 0, 1, 2])) == [b"message 0", b"message 2"]
    assert store.statistics.corrupt_record_count == 2
