"""The store from outside: append, read, flush."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.errors import (
    RecordIllegalError,
    StoreClosedError,
)
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueBounds, ReadLimits
from rocketpy_proto.record import BLANK_BYTES, decode_record
from tests.support.blocks import bodies_of, wire_block
from tests.support.store.disk_calls import LOG, DiskCall, before_call, failing
from tests.support.store.messages import (
    NO_END,
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    read_all,
)
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash


def test_s01_records_lie_back_to_back_with_the_fields_the_broker_assigns(
    tmp_path: Path, clock: ManualClock, store: MessageStore
) -> None:
    clock.advance(5)
    put(store, [b"a", b"bb"])
    put(store, [b"ccc"])
    store.close()
    log = (tmp_path / "commitlog" / "0".zfill(20)).read_bytes()
    position = 0
    for number, body in enumerate([b"a", b"bb", b"ccc"]):
        decoded = decode_record(log, position)
        record = decoded.record
        assert (record.body, record.queue_offset, record.queue_id) == (body, number, 2)
        assert record.physical_offset == position
        assert record.store_timestamp_ms == clock.now_ms()
        assert str(record.store_host) == "10.0.0.2:10911"
        position += decoded.size
    assert log[position:] == bytes(SEGMENT_BYTES - position)


def test_s01_a_block_that_does_not_fit_goes_to_the_next_segment_behind_a_blank_record(
    tmp_path: Path, store: MessageStore
) -> None:
    first = put(store, [bytes(3000)])
    second = put(store, [bytes(2000), b"x"])
    assert (first, second) == (0, SEGMENT_BYTES)
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert names == ["00000000000000000000", "00000000000000004096"]
    log = (tmp_path / "commitlog" / names[0]).read_bytes()
    size = decode_record(log, 0).size
    assert struct.unpack_from(">iI", log, size) == (SEGMENT_BYTES - size, 0xCBD43194)


@pytest.mark.parametrize("left", [BLANK_BYTES, BLANK_BYTES - 1])
def test_s01_what_is_left_of_a_segment_holds_a_blank_record_at_least(
    open_store: OpenStore, left: int, store: MessageStore
) -> None:
    put(store, [b"x"])
    least = len(wire_block(QUEUE.topic, [b"x"]).records)
    filler = bytes(SEGMENT_BYTES - left - 2 * least + 1)
    assert put(store, [filler]) == (least if left == BLANK_BYTES else SEGMENT_BYTES)
    put(store, [b"next"])
    crash(store)
    again = open_store()
    assert read_all(again) == [b"x", filler, b"next"]


def test_s02_a_block_larger_than_a_segment_is_refused_and_nothing_is_stored(
    store: MessageStore,
) -> None:
    with pytest.raises(RecordIllegalError, match="4096"):
        put(store, [bytes(4000)])
    assert store.range_of(QUEUE) == QueueBounds(0, 0)
    assert put(store, [b"next"]) == 0


def test_s03_each_queue_counts_its_own_offsets(store: MessageStore) -> None:
    put(store, numbered(3))
    put(store, numbered(2), OTHER)
    put(store, numbered(1, 3))
    assert store.range_of(QUEUE) == QueueBounds(0, 4)
    assert store.range_of(OTHER) == QueueBounds(0, 2)


def test_s04_units_hold_physical_offset_size_and_tags_code(
    tmp_path: Path, store: MessageStore
) -> None:
    offset = put(store, [b"first"])
    block = wire_block("TopicA", [b"tagged"], tags="TagA").parsed()
    result = store.append(QUEUE, block)
    units = (tmp_path / "consumequeue" / "TopicA" / "2" / "0".zfill(20)).read_bytes()
    size = result.physical_offset - offset
    assert struct.unpack_from(">qiq", units, 0) == (offset, size, 0)
    tagged = (result.physical_offset, result.end_offset - result.physical_offset, 2598919)
    assert struct.unpack_from(">qiq", units, 20) == tagged


@pytest.mark.parametrize("bytes_max", [1, 300, 1 << 20])
def test_s11_reads_cross_queue_files_and_segments_and_keep_the_order(
    bytes_max: int, store: MessageStore
) -> None:
    for start in range(0, 120, 6):
        put(store, numbered(6, start))
        put(store, numbered(1, start), OTHER)
    assert read_all(store, QUEUE, bytes_max) == numbered(120)


def test_s11_interleaved_queues_are_gathered_record_by_record(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    for number in range(90):
        put(store, numbered(1, number))
        put(store, [b"between"], OTHER)
    result = store.get_message(QUEUE, 0, NO_END, ReadLimits.of_bytes(1 << 20))
    assert len(result.sizes) == 90
    assert len(result.parts) == 1
    assert read_all(store) == numbered(90)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (5, GetMessageStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 5),
        (4, GetMessageStatus.FOUND, 5),
    ],
)
def test_s11_an_offset_outside_the_queue_is_answered_with_where_to_go(
    offset: int, status: GetMessageStatus, next_offset: int, store: MessageStore
) -> None:
    put(store, numbered(5))
    result = store.get_message(QUEUE, offset, NO_END, ReadLimits.of_bytes(1 << 20))
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 5)


def test_s11_a_queue_without_messages_is_no_queue(store: MessageStore) -> None:
    result = store.get_message(QUEUE, 0, NO_END, ReadLimits.of_bytes(1 << 20))
    assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_s07_with_sync_flush_a_record_is_visible_only_after_its_flush(
    open_store: OpenStore,
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    result = store.append(QUEUE, wire_block("TopicA", numbered(2)).parsed())
    assert store.range_of(QUEUE) == QueueBounds(0, 0)
    assert store.flushed_end < result.end_offset
    flush_log(store)
    assert store.flushed_end == result.end_offset
    assert read_all(store) == numbered(2)


def test_s07_what_is_appended_during_a_flush_waits_for_the_next(open_store: OpenStore) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put(store, numbered(2))
    plan = store.plan_flush()
    during = put(store, [b"during"])
    plan.run()
    store.flushed(plan)
    assert store.flushed_end == during
    assert read_all(store) == numbered(2)


def test_s07_after_a_failed_flush_the_store_takes_no_more_writes(open_store: OpenStore) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put(store, numbered(1))
    store.flush_failed(OSError(5, "Input/output error"))
    with pytest.raises(StoreClosedError, match="read-only"):
        put(store, numbered(1))


def test_b04_a_stop_after_a_failed_flush_flushes_nothing_and_leaves_the_abort_marker(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put(store, numbered(1))
    store.flush_failed(OSError(errno.EIO, "Input/output error"))
    flushed: list[str] = []
    before_call(monkeypatch, "fdatasync", LOG, lambda call: flushed.append(call.path))
    store.close()
    assert flushed == []
    assert (tmp_path / "abort").exists()


def test_b04_a_stop_that_cannot_save_its_manifest_leaves_the_abort_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(1))
    before_call(monkeypatch, "fsync", "*/manifest.json.tmp", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        store.close()
    assert (tmp_path / "abort").exists()


def test_f8_derived_files_are_never_flushed_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(1))
    flushed: list[str] = []

    def fail(call: DiskCall) -> None:
        flushed.append(Path(call.path).parent.parent.name)
        if flushed[-1] == QUEUE.topic:
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        before_call(patch, "fdatasync", "*/consumequeue/*", fail)
        with pytest.raises(OSError, match="Input/output"):
            store.flush_derived()
        store.flush_derived()
        store.close()
    assert flushed.count(QUEUE.topic) == 1
    assert (tmp_path / "abort").exists()


def test_a_topic_that_cannot_be_marked_as_deleted_keeps_its_messages(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(3))
    with monkeypatch.context() as patch:
        before_call(patch, "fsync", "*/deletedTopics.json.tmp", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space left"):
            delete_topic(store, QUEUE.topic)
    assert read_all(store) == numbered(3)
    put(store, numbered(1, 3))
    assert read_all(store) == numbered(4)


def test_a_closed_store_takes_nothing(new_store: OpenStore) -> None:
    store = new_store()
    with pytest.raises(StoreClosedError, match="not open"):
        put(store, numbered(1))
    store.open()
    store.close()
    with pytest.raises(StoreClosedError, match="stopped"):
        put(store, numbered(1))


def test_views_of_records_outlive_the_store(store: MessageStore) -> None:
    put(store, numbered(4))
    result = store.get_message(QUEUE, 0, NO_END, ReadLimits.of_bytes(1 << 20))
    store.close()
    data = b"".join(bytes(part) for part in result.parts)
    assert bodies_of(data, np.asarray(result.sizes)) == numbered(4)


def test_a_topic_takes_no_message_while_it_is_deleted(store: MessageStore) -> None:
    with store.deletions.refusing(QUEUE.topic):
        with pytest.raises(StoreClosedError, match="is being deleted; try again later"):
            put(store, [b"too early"])
        put(store, [b"of another topic"], OTHER)
    put(store, [b"a"])
    assert read_all(store) == [b"a"]
    assert read_all(store, OTHER) == [b"of another topic"]
