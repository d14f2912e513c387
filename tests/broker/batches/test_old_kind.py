"""Batches that a broker of the old kind decided, with prepared records in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketpy_broker.services.batches.log import BATCHES_QUEUE, DECISION, BatchLog
from rocketpy_broker.services.batches.service import Outcome
from rocketpy_broker.store.append import prepared
from rocketpy_broker.store.append.prepared import PreparedRange
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record.sys_flag import TRANSACTION_PREPARED
from tests.faults.batch_use import WRITER, Desk, delete_between_runs
from tests.faults.images import OTHER, QUEUE, block_of, read_bodies, send, workshop

TOKEN = 5


def prepare(desk: Desk, queue: QueueKey, *bodies: bytes) -> PreparedRange:
    """Appends prepared records as the old kind did."""
    block = block_of(queue.topic, list(bodies))
    block.header["sys_flag"] |= TRANSACTION_PREPARED
    block.header["prepared_transaction_offset"] = TOKEN
    offset = desk.store.append(queue, block).physical_offset
    return PreparedRange(queue, offset, len(block.data), len(block))


def decide(desk: Desk, *ranges: PreparedRange) -> None:
    """Appends a decision of the old kind."""
    content = {
        "writerId": WRITER,
        "batchId": 3,
        "preparedToken": TOKEN,
        "ranges": [[*one.queue, one.offset, one.length, one.record_count] for one in ranges],
    }
    BatchLog(desk.store, desk.clock)._append(DECISION, json.dumps(content).encode())


def store_before(folder: Path, committed: int) -> None:
    """Leaves a store that was killed with `committed` of its five records committed."""
    desk = Desk(folder)
    desk.open()
    prepare(desk, QUEUE, b"never")
    ranges = [
        prepare(desk, QUEUE, b"d", b"e"),
        prepare(desk, QUEUE, b"a", b"b"),
        prepare(desk, OTHER, b"c"),
    ]
    wanted = [ranges[1], ranges[2], ranges[0]]
    decide(desk, *wanted)
    for one in wanted:
        offset = one.offset
        while offset < one.end and committed > 0:
            part = desk.store.prepared.committed_part(one, offset)
            assert part.block is not None
            desk.store.append(one.queue, part.block)
            offset, committed = part.end, committed - 1
    send(desk.store, [b"plain"])
    desk.crash()


@pytest.mark.parametrize("committed", range(6))
def test_s08_a_batch_of_the_old_kind_is_finished_once(
    committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "PART_BYTES", 1)
    with workshop() as folder:
        store_before(folder, committed)
        for _ in range(2):
            desk = Desk(folder)
            desk.open()
            found = [body for body in read_bodies(desk.store, QUEUE) if body != b"plain"]
            assert found == [b"a", b"b", b"d", b"e"]
            assert read_bodies(desk.store, OTHER) == [b"c"]
            entry = desk.ledger.last(WRITER)
            assert entry is not None
            assert (entry.batch_id, entry.record_count, entry.stored_count) == (3, 5, 5)
            desk.stop()
        desk = Desk(folder)
        desk.open()
        assert desk.commit(3, 9).outcome is Outcome.ALREADY_COMMITTED
        assert desk.write(4, 9).outcome is Outcome.COMMITTED
        # One decision and one completion of each kind.
        assert desk.store.next_offset(BATCHES_QUEUE) == 4
        desk.crash()


def test_s08_a_batch_of_the_old_kind_leaves_out_a_deleted_topic() -> None:
    with workshop() as folder:
        store_before(folder, 0)
        delete_between_runs(folder, OTHER.topic)
        desk = Desk(folder)
        desk.open()
        assert read_bodies(desk.store, OTHER) == []
        assert read_bodies(desk.store, QUEUE) == [b"plain", b"a", b"b", b"d", b"e"]
        desk.crash()
