"""Blocks of several queues: the same result as one block per queue."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.queues.slices import slice_starts
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.call_limits import BLOCK_QUEUES_MAX, OWN_QUEUES
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT
from tests.support.blocks import WireBlock, wire_block
from tests.support.store.disk_calls import before_call, failing
from tests.support.store.messages import flush_log, read_all, save_manifest
from tests.support.store.stores import OpenStore, crash

TOPIC = "TopicA"
QUEUE_1 = f"*/consumequeue/{TOPIC}/1/*"
OWN = QueueKey(TOPIC, OWN_QUEUES)


def block_of(*runs: tuple[int, Sequence[bytes]]) -> WireBlock:
    """Returns records of these queues, one run after the other; each body is also a key."""
    bodies = [body for _, run in runs for body in run]
    queue_ids = [queue_id for queue_id, run in runs for _ in run]
    keys = [body.decode() for body in bodies]
    return wire_block(TOPIC, bodies, tags="TagA", keys=keys, queue_ids=queue_ids)


def put_runs(store: MessageStore, *runs: tuple[int, Sequence[bytes]]) -> int:
    """Appends the runs as one block; returns the physical offset of its first record."""
    return store.append(OWN, block_of(*runs).parsed()).physical_offset


def queue(store: MessageStore, queue_id: int) -> list[bytes]:
    return read_all(store, QueueKey(TOPIC, queue_id))


def test_s03_each_record_gets_the_next_offset_of_its_own_queue(store: MessageStore) -> None:
    put_runs(store, (3, [b"a"]), (0, [b"b", b"c"]), (7, [b"d"]))
    put_runs(store, (0, [b"e"]), (3, [b"f", b"g"]))
    assert [queue(store, number) for number in (0, 3, 7)] == [
        [b"b", b"c", b"e"],
        [b"a", b"f", b"g"],
        [b"d"],
    ]


def test_s03_committed_messages_of_several_queues_are_each_in_their_own_queue(
    store: MessageStore,
) -> None:
    for committed in ([0, 1, 2, 3], [2]):
        block = block_of((3, [b"a"]), (0, [b"b", b"c"]), (7, [b"d"])).parsed()
        block.header["sys_flag"][committed] |= TRANSACTION_COMMIT
        store.append(OWN, block)
    assert [queue(store, number) for number in (0, 3, 7)] == [
        [b"b", b"c", b"b", b"c"],
        [b"a", b"a"],
        [b"d", b"d"],
    ]


def test_s01_records_say_their_queue_and_lie_back_to_back(
    clock: ManualClock, store: MessageStore
) -> None:
    result = store.append(OWN, block_of((3, [b"a"]), (0, [b"b", b"c"])).parsed())
    assert (result.queue_offset, result.record_count) == (0, 3)
    store.close()
    log = (store.config.folder / "commitlog" / "0".zfill(20)).read_bytes()
    position = 0
    for queue_id, queue_offset, body in ((3, 0, b"a"), (0, 0, b"b"), (0, 1, b"c")):
        decoded = decode_record(log, position)
        record = decoded.record
        assert (record.queue_id, record.queue_offset, record.body) == (queue_id, queue_offset, body)
        assert record.physical_offset == position
        assert record.store_timestamp_ms == clock.now_ms()
        position += decoded.size
    assert position == result.end_offset


def test_s05_every_record_is_found_by_its_key(store: MessageStore) -> None:
    put_runs(store, (3, [b"a"]), (0, [b"b", b"c"]))
    for body in (b"a", b"b", b"c"):
        (found,) = store.messages.by_key(TOPIC, body.decode(), 0, 1 << 50, 10)
        assert decode_record(found, 0).record.body == body


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_s09_a_crash_loses_none_of_the_queues(open_store: OpenStore, flush: FlushDiskType) -> None:
    store = open_store(flush)
    put_runs(store, (1, [b"a", b"b"]), (0, [b"c"]))
    if flush is FlushDiskType.SYNC_FLUSH:
        assert queue(store, 0) == []
        flush_log(store)
    crash(store)
    again = open_store(flush)
    assert (queue(again, 0), queue(again, 1)) == ([b"c"], [b"a", b"b"])
    put_runs(again, (0, [b"d"]))
    flush_log(again)
    assert queue(again, 0) == [b"c", b"d"]


def test_f17_a_queue_that_cannot_be_written_waits_by_itself(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Asserts that dispatch stops before the queue's first record until there is space."""
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", QUEUE_1, failing(errno.ENOSPC))
        result = store.append(OWN, block_of((0, [b"a"]), (1, [b"b"]), (2, [b"c"])).parsed())
    assert [queue(store, number) for number in range(3)] == [[b"a"], [], [b"c"]]
    first_end = len(block_of((0, [b"a"])).records)
    assert store.positions().dispatched_end == first_end
    assert store.is_dispatched(first_end)
    assert not store.is_dispatched(result.end_offset)
    assert store.is_dispatched(result.end_offset, begin=result.end_offset - 1)
    store.dispatch()
    assert [queue(store, number) for number in range(3)] == [[b"a"], [b"b"], [b"c"]]
    assert store.positions().dispatched_end == result.end_offset


def test_s05_keys_of_a_block_that_is_dispatched_in_part_survive_a_manifest_and_a_crash(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put_runs(store, (0, [b"before"]))
    flush_log(store)
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", QUEUE_1, failing(errno.ENOSPC))
        put_runs(store, (0, [b"a"]), (1, [b"b"]))
        flush_log(store)
        save_manifest(store)
    crash(store)
    again = open_store(FlushDiskType.SYNC_FLUSH)
    assert [queue(again, number) for number in range(2)] == [[b"before", b"a"], [b"b"]]
    for body in (b"before", b"a", b"b"):
        (found,) = again.messages.by_key(TOPIC, body.decode(), 0, 1 << 50, 10)
        assert decode_record(found, 0).record.body == body


def test_s05_keys_that_wait_for_room_on_the_disk_survive_a_manifest_and_a_crash(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put_runs(store, (0, [b"before"]))
    flush_log(store)
    store.dispatch()
    with monkeypatch.context() as patched:
        before_call(patched, "pwrite", "*/index/*", failing(errno.ENOSPC))
        put_runs(store, (0, [b"a"]))
        flush_log(store)
        save_manifest(store)
    crash(store)
    again = open_store(FlushDiskType.SYNC_FLUSH)
    for body in (b"before", b"a"):
        (found,) = again.messages.by_key(TOPIC, body.decode(), 0, 1 << 50, 10)
        assert decode_record(found, 0).record.body == body


def test_s02_a_queue_that_comes_again_is_refused_and_nothing_is_stored(
    store: MessageStore,
) -> None:
    with pytest.raises(RecordIllegalError, match="sort its records by queue"):
        put_runs(store, (0, [b"a"]), (1, [b"b"]), (0, [b"c"]))
    assert store.positions().log_end == 0
    assert store.range_of(QueueKey(TOPIC, 0)) == QueueBounds(0, 0)


def test_s03_in_a_joined_block_a_queue_that_comes_again_goes_on(open_store: OpenStore) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put_runs(store, (0, [b"before"]))
    block = block_of((0, [b"a", b"b"]), (1, [b"c"]), (0, [b"d"]), (1, [b"e"]), (0, [b"f"])).parsed()
    result = store.append(OWN, block, AppendHints(is_joined=True))
    assert (result.queue_offset, result.record_count) == (1, 6)
    flush_log(store)
    put_runs(store, (0, [b"g"]))
    flush_log(store)
    wanted = [b"before", b"a", b"b", b"d", b"f", b"g"], [b"c", b"e"]
    assert (queue(store, 0), queue(store, 1)) == wanted
    crash(store)
    again = open_store(FlushDiskType.SYNC_FLUSH)
    assert (queue(again, 0), queue(again, 1)) == wanted
    (found,) = again.messages.by_key(TOPIC, "f", 0, 1 << 50, 10)
    assert decode_record(found, 0).record.queue_offset == 4


def test_s02_a_block_has_so_many_queues_at_most() -> None:
    runs = [(number, [b"x"]) for number in range(BLOCK_QUEUES_MAX + 1)]
    assert len(slice_starts(block_of(*runs[:-1]).parsed())) == BLOCK_QUEUES_MAX
    with pytest.raises(RecordIllegalError, match=r"of 101 queues, limit 100. Send smaller blocks"):
        slice_starts(block_of(*runs).parsed())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=6))
def test_runs_begin_where_the_queue_changes(runs: list[tuple[int, int]]) -> None:
    block = block_of(*((number, [b"x"] * count) for number, count in runs)).parsed()
    ids = block.header["queue_id"].tolist()
    wanted = [row for row in range(len(ids)) if row == 0 or ids[row] != ids[row - 1]]
    if len({ids[row] for row in wanted}) < len(wanted):
        with pytest.raises(RecordIllegalError):
            slice_starts(block)
    else:
        assert np.array_equal(slice_starts(block), wanted)
