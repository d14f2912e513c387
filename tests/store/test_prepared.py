"""Prepared records that were damaged or lost after their batch had been decided."""

from __future__ import annotations

import numpy as np
import pytest

from rocketpy_broker.store.append.prepared import PreparedRange
from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from tests.blocks import bodies_of, wire_block
from tests.store.check.planted_faults import flip
from tests.store.conftest import OpenStore
from tests.store.messages import QUEUE, flush_log, numbered, put, put_all, remove_oldest_segment

BODIES = [b"first", b"second", b"third"]


@pytest.fixture
def store(new_store: OpenStore) -> MessageStore:
    """Returns an open store."""
    opened = new_store()
    opened.open()
    return opened


def prepare(store: MessageStore) -> tuple[PreparedRange, list[int]]:
    """Appends the prepared bodies; returns their range and the offset of each record."""
    block = wire_block(QUEUE.topic, BODIES).parsed()
    block.header["sys_flag"] |= TRANSACTION_PREPARED
    block.header["prepared_transaction_offset"] = 7
    offset = store.append(QUEUE, block).physical_offset
    wanted = PreparedRange(QUEUE, offset, len(block.data), len(block))
    return wanted, (block.positions + offset).tolist()


def flip_body_of(store: MessageStore, body: bytes) -> None:
    (segment,) = store._log.files.segments
    flip(segment.path, bytes(segment.view).index(body))


def test_s08_a_record_damaged_after_the_decision_is_passed_over_alone(store: MessageStore) -> None:
    wanted, offsets = prepare(store)
    flip_body_of(store, b"second")
    found, offset = [], wanted.offset
    while offset < wanted.end:
        part = store.prepared.committed_part(wanted, offset)
        assert part.end > offset
        offset = part.end
        if part.block is not None:
            found += bodies_of(part.block.data.tobytes(), part.block.sizes)
            flags = part.block.header["sys_flag"]
            assert (flags & TRANSACTION_MASK == TRANSACTION_COMMIT).all()
    assert found == [b"first", b"third"]
    assert store.prepared.end_of(offsets[0]) == offsets[1]
    assert store.prepared.end_of(offsets[1]) == offsets[2]


def test_s08_a_record_that_was_filled_after_the_decision_is_passed_over_alone(
    store: MessageStore,
) -> None:
    wanted, offsets = prepare(store)
    (segment,) = store._log.files.segments
    ends = [*offsets[1:], wanted.end]
    damage = Damage(segment.path, offsets[1], ends[1] - offsets[1], "was damaged")
    assert fill(store._log, damage, 0, None)
    found, offset = [], wanted.offset
    for end in ends:
        part = store.prepared.committed_part(wanted, offset)
        assert part.end == end
        offset = part.end
        block = part.block
        found.append([] if block is None else bodies_of(block.data.tobytes(), block.sizes))
    assert found == [[b"first"], [], [b"third"]]


def test_s08_what_the_log_has_no_more_is_passed_over(store: MessageStore) -> None:
    wanted, _ = prepare(store)
    behind = PreparedRange(QUEUE, wanted.end, 100, 1)
    part = store.prepared.committed_part(behind, behind.offset)
    assert (part.block, part.end) == (None, behind.end)
    assert store.prepared.end_of(wanted.end) == wanted.end + 1


def test_s08_committed_records_are_found_on_both_sides_of_damage(store: MessageStore) -> None:
    wanted, offsets = prepare(store)
    block = store.prepared.committed_part(wanted, wanted.offset).block
    assert block is not None
    begin = store.append(QUEUE, block).physical_offset
    put(store, [b"plain"])
    flip_body_of(store, b"plain")
    put(store, [b"behind"])
    committed = np.concatenate(list(store.prepared.committed_from(begin)))
    assert committed.tolist() == offsets


def test_s08_a_prepared_record_is_found_by_nobody(store: MessageStore) -> None:
    block = wire_block(QUEUE.topic, [b"k"], keys=["k"]).parsed()
    block.header["sys_flag"] |= TRANSACTION_PREPARED
    offset = store.append(QUEUE, block).physical_offset
    store.dispatch()
    assert store.messages.at(offset) is None
    assert store.messages.by_key(QUEUE.topic, "k", 0, 1 << 60, 8) == []


def test_s08_nothing_takes_the_place_of_decided_records_that_were_cleaned(
    store: MessageStore,
) -> None:
    wanted, _ = prepare(store)
    put_all(store, numbered(100))
    store.dispatch()
    flush_log(store)
    remove_oldest_segment(store)
    part = store.prepared.committed_part(wanted, wanted.offset)
    assert (part.block, part.end) == (None, wanted.end)
