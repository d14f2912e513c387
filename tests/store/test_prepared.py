"""Records with transaction bits: prepared ones, and committed ones that name them."""

from __future__ import annotations

import numpy as np

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from tests.support.blocks import wire_block
from tests.support.store.messages import QUEUE, put
from tests.support.store.planted_faults import flip


def flip_body_of(store: MessageStore, body: bytes) -> None:
    (segment,) = store._log.files.segments
    flip(segment.path, bytes(segment.view).index(body))


def test_s08_committed_records_are_found_on_both_sides_of_damage(store: MessageStore) -> None:
    halves = [0, 100, 1 << 40]
    block = wire_block(QUEUE.topic, [b"first", b"second", b"third"]).parsed()
    block.header["sys_flag"] |= TRANSACTION_COMMIT
    block.header["prepared_transaction_offset"] = halves
    begin = store.append(QUEUE, block).physical_offset
    put(store, [b"plain"])
    flip_body_of(store, b"plain")
    put(store, [b"behind"])
    block.header["prepared_transaction_offset"] = [7, 8, 9]
    store.append(QUEUE, block)
    committed = np.concatenate(list(store.batch_marks.halves_from(begin)))
    assert committed.tolist() == [*halves, 7, 8, 9]


def test_s08_a_prepared_record_is_found_by_nobody(store: MessageStore) -> None:
    block = wire_block(QUEUE.topic, [b"k"], keys=["k"]).parsed()
    block.header["sys_flag"] |= TRANSACTION_PREPARED
    offset = store.append(QUEUE, block).physical_offset
    store.dispatch()
    assert store.messages.at(offset) is None
    assert store.messages.by_key(QUEUE.topic, "k", 0, 1 << 60, 8) == []
