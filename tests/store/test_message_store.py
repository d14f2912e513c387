"""The store from outside: append, read, restart, crash."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.errors import (
    RecordIllegalError,
    StoreClosedError,
    StoreDirectoryError,
    StoreLockedError,
)
from rocketpy_broker.store.flush import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore, StoreConfig
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, QueueRange
from rocketpy_proto.record import decode_record
from tests.blocks import bodies_of, wire_block
from tests.store.conftest import SEGMENT_BYTES, STORE_HOST, OpenStore, crash

QUEUE = QueueKey("TopicA", 2)
OTHER = QueueKey("TopicB", 0)
NO_END = 1 << 60


def put(store: MessageStore, bodies: list[bytes], queue: QueueKey = QUEUE) -> int:
    """Append one block; return its physical offset."""
    return store.append(queue, wire_block(queue.topic, bodies).parsed()).physical_offset


def put_all(store: MessageStore, bodies: list[bytes]) -> None:
    """Append in blocks of five."""
    for start in range(0, len(bodies), 5):
        put(store, bodies[start : start + 5])


def read_all(store: MessageStore, queue: QueueKey = QUEUE, bytes_max: int = 1 << 20) -> list[bytes]:
    """Every body of a queue, in order, in as many reads as it takes."""
    offset = store.range_of(queue).min_offset
    bodies: list[bytes] = []
    while True:
        result = store.get_message(queue, offset, NO_END, bytes_max)
        if result.status is not GetMessageStatus.FOUND:
            return bodies
        data = b"".join(bytes(part) for part in result.parts)
        bodies += bodies_of(data, result.sizes)
        assert result.next_offset == offset + len(result.sizes)
        offset = result.next_offset


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Bodies that can be told apart."""
    return [b"message %d" % number for number in range(start, start + count)]


def test_s01_records_lie_back_to_back_with_the_fields_the_broker_assigns(
    new_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> None:
    store = new_store()
    store.open()
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
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store()
    store.open()
    first = put(store, [bytes(3000)])
    second = put(store, [bytes(2000), b"x"])
    assert (first, second) == (0, SEGMENT_BYTES)
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert names == ["00000000000000000000", "00000000000000004096"]
    log = (tmp_path / "commitlog" / names[0]).read_bytes()
    size = decode_record(log, 0).size
    assert struct.unpack_from(">iI", log, size) == (SEGMENT_BYTES - size, 0xCBD43194)


def test_s02_a_block_larger_than_a_segment_is_refused_and_nothing_is_stored(
    new_store: OpenStore,
) -> None:
    store = new_store()
    store.open()
    with pytest.raises(RecordIllegalError, match="4096"):
        put(store, [bytes(4000)])
    assert store.range_of(QUEUE) == QueueRange(0, 0)
    assert put(store, [b"next"]) == 0


def test_s03_each_queue_counts_its_own_offsets(new_store: OpenStore) -> None:
    store = new_store()
    store.open()
    put(store, numbered(3))
    put(store, numbered(2), OTHER)
    put(store, numbered(1, 3))
    assert store.range_of(QUEUE) == QueueRange(0, 4)
    assert store.range_of(OTHER) == QueueRange(0, 2)


def test_s04_units_hold_physical_offset_size_and_tags_code(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store()
    store.open()
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
    new_store: OpenStore, bytes_max: int
) -> None:
    store = new_store()
    store.open()
    for start in range(0, 120, 6):
        put(store, numbered(6, start))
        put(store, numbered(1, start), OTHER)
    assert read_all(store, QUEUE, bytes_max) == numbered(120)


def test_s11_interleaved_queues_are_gathered_record_by_record(new_store: OpenStore) -> None:
    store = new_store(segment_bytes=1 << 20, queue_file_bytes=2000)
    store.open()
    for number in range(90):
        put(store, numbered(1, number))
        put(store, [b"between"], OTHER)
    result = store.get_message(QUEUE, 0, NO_END, 1 << 20)
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
    new_store: OpenStore, offset: int, status: GetMessageStatus, next_offset: int
) -> None:
    store = new_store()
    store.open()
    put(store, numbered(5))
    result = store.get_message(QUEUE, offset, NO_END, 1 << 20)
    assert (result.status, result.next_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 5)


def test_s11_a_queue_without_messages_is_no_queue(new_store: OpenStore) -> None:
    store = new_store()
    store.open()
    result = store.get_message(QUEUE, 0, NO_END, 1 << 20)
    assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_s07_with_sync_flush_a_record_is_visible_only_after_its_flush(
    new_store: OpenStore,
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    result = store.append(QUEUE, wire_block("TopicA", numbered(2)).parsed())
    assert store.range_of(QUEUE) == QueueRange(0, 0)
    assert store.flushed_end < result.end_offset
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)
    assert store.flushed_end == result.end_offset
    assert read_all(store) == numbered(2)


def test_s07_after_a_failed_flush_the_store_takes_no_more_writes(new_store: OpenStore) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    put(store, numbered(1))
    store.flush_failed(OSError(5, "Input/output error"))
    with pytest.raises(StoreClosedError, match="read-only"):
        put(store, numbered(1))


def test_s09_a_clean_restart_goes_on_where_it_stopped(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    store.open()
    put_all(store, numbered(50))
    store.close()
    assert not (tmp_path / "abort").exists()
    again = new_store()
    result = again.open()
    assert not result.abnormal
    assert result.units_dispatched == 0 or result.begin > 0
    put_all(again, numbered(10, 50))
    assert read_all(again) == numbered(60)


def test_s09_after_a_crash_nothing_written_is_lost(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    store.open()
    for start in range(0, 60, 5):
        put(store, numbered(5, start))
        put(store, numbered(1, start), OTHER)
    crash(store)
    assert (tmp_path / "abort").exists()
    again = new_store()
    result = again.open()
    assert result.abnormal
    assert result.records_scanned == 72
    assert read_all(again) == numbered(60)
    assert put(again, numbered(1, 60)) == result.end
    assert read_all(again) == numbered(61)


def test_s09_undispatched_records_of_a_sync_store_are_dispatched_by_recovery(
    new_store: OpenStore,
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    put(store, numbered(7))
    crash(store)
    again = new_store()
    again.open()
    assert read_all(again) == numbered(7)


@pytest.mark.parametrize("crashed", [True, False])
def test_s06_lost_consume_queues_are_rebuilt_byte_for_byte(
    new_store: OpenStore, tmp_path: Path, crashed: bool
) -> None:
    store = new_store()
    store.open()
    for start in range(0, 40, 4):
        put(store, numbered(4, start))
        put(store, numbered(2, start), OTHER)
    (crash if crashed else MessageStore.close)(store)
    folder = tmp_path / "consumequeue"
    expected = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(folder)
    again = new_store()
    again.open()
    assert read_all(again) == numbered(40)
    again.close()
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == expected


@pytest.mark.parametrize("cut", [1, 4, 50, 100])
def test_s09_a_torn_last_record_is_cut_and_leaves_no_trace(
    new_store: OpenStore, tmp_path: Path, cut: int
) -> None:
    store = new_store()
    store.open()
    put(store, numbered(3))
    end = put(store, [b"torn" * 30])
    crash(store)
    path = tmp_path / "commitlog" / "0".zfill(20)
    data = bytearray(path.read_bytes())
    data[end + cut :] = b"\xff" * (len(data) - end - cut)
    path.write_bytes(data)
    again = new_store()
    result = again.open()
    assert result.end == end
    assert result.bytes_dropped > 0
    assert read_all(again) == numbered(3)
    assert path.read_bytes()[end:] == bytes(SEGMENT_BYTES - end)
    put(again, numbered(1, 3))
    assert read_all(again) == numbered(4)


def test_s09_units_beyond_the_log_are_dropped(new_store: OpenStore, tmp_path: Path) -> None:
    store = new_store()
    store.open()
    put(store, numbered(3))
    end = put(store, numbered(2, 3))
    crash(store)
    path = tmp_path / "commitlog" / "0".zfill(20)
    data = bytearray(path.read_bytes())
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)
    again = new_store()
    again.open()
    assert again.range_of(QUEUE) == QueueRange(0, 3)
    put(again, [b"other"])
    assert read_all(again) == [*numbered(3), b"other"]


def test_a_deleted_topic_never_comes_back_into_one_of_the_same_name(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store()
    store.open()
    put(store, numbered(5))
    store.delete_topic("TopicA")
    assert store.range_of(QUEUE) == QueueRange(0, 0)
    put(store, [b"new"])
    crash(store)
    shutil.rmtree(tmp_path / "consumequeue" / "TopicA")
    again = new_store()
    again.open()
    assert read_all(again) == [b"new"]


def test_f12_a_second_store_on_the_directory_is_refused(tmp_path: Path) -> None:
    script = (
        "import sys, fcntl, os, pathlib\n"
        "path = pathlib.Path(sys.argv[1]) / 'lock'\n"
        "fd = os.open(path, os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        store = MessageStore(StoreConfig(tmp_path), ManualClock(), STORE_HOST)
        with pytest.raises(StoreLockedError, match="another broker"):
            store.open()
        holder.communicate("")


@pytest.mark.parametrize("name", ["notes.txt", "0000000000000000409"])
def test_a_foreign_file_in_the_log_folder_stops_the_start_and_is_left_alone(
    new_store: OpenStore, tmp_path: Path, name: str
) -> None:
    store = new_store()
    store.open()
    put(store, numbered(1))
    store.close()
    foreign = tmp_path / "commitlog" / name
    foreign.write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(StoreDirectoryError, match=name):
        new_store().open()
    assert foreign.exists()


def test_another_segment_size_is_told_with_the_file(new_store: OpenStore) -> None:
    store = new_store()
    store.open()
    put(store, numbered(1))
    store.close()
    with pytest.raises(StoreDirectoryError, match="4096 bytes instead of 8192"):
        new_store(segment_bytes=8192).open()


def test_a_closed_store_takes_nothing(new_store: OpenStore) -> None:
    store = new_store()
    with pytest.raises(StoreClosedError, match="not open"):
        put(store, numbered(1))
    store.open()
    store.close()
    with pytest.raises(StoreClosedError, match="stopped"):
        put(store, numbered(1))


def test_views_of_records_outlive_the_store(new_store: OpenStore) -> None:
    store = new_store()
    store.open()
    put(store, numbered(4))
    result = store.get_message(QUEUE, 0, NO_END, 1 << 20)
    store.close()
    data = b"".join(bytes(part) for part in result.parts)
    assert bodies_of(data, np.asarray(result.sizes)) == numbered(4)
