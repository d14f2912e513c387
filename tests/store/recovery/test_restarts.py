"""Restarts of the store: after a clean stop, a crash, a torn tail, or with derived files lost."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker.errors import (
    StoreClosedError,
    StoreDirectoryError,
    StoreLockedError,
)
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from tests.support.store.disk_calls import CHECKSUMS, LOG, DiskCall, before_call, failing
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    read_all,
    save_manifest,
)
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash, store_in


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


def test_s09_a_manifest_that_still_holds_is_not_written_again(
    new_store: OpenStore, tmp_path: Path
) -> None:
    path = tmp_path / "rocketpy" / "manifest.json"
    store = new_store()
    store.open()
    put_all(store, numbered(5))
    store.close()
    told = path.stat().st_ino
    again = new_store()
    again.open()
    assert path.stat().st_ino == told
    put(again, numbered(1))
    crash(again)
    killed = new_store()
    assert killed.open().records_scanned == 1
    assert path.stat().st_ino != told
    killed.close()
    last = new_store()
    assert last.open().records_scanned == 0
    assert read_all(last) == numbered(5) + numbered(1)


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
    open_store: OpenStore,
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put(store, numbered(7))
    crash(store)
    again = open_store()
    assert read_all(again) == numbered(7)


@pytest.mark.parametrize("crashed", [True, False])
def test_s06_lost_consume_queues_are_rebuilt_byte_for_byte(
    open_store: OpenStore, tmp_path: Path, crashed: bool, store: MessageStore
) -> None:
    for start in range(0, 40, 4):
        put(store, numbered(4, start))
        put(store, numbered(2, start), OTHER)
    (crash if crashed else MessageStore.close)(store)
    folder = tmp_path / "consumequeue"
    expected = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shutil.rmtree(folder)
    again = open_store()
    assert read_all(again) == numbered(40)
    again.close()
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == expected


@pytest.mark.parametrize("cut", [1, 4, 50, 100])
def test_s09_a_torn_last_record_is_cut_and_leaves_no_trace(
    new_store: OpenStore, tmp_path: Path, cut: int, store: MessageStore
) -> None:
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
    assert [copy.read_bytes() for copy in result.quarantined] == [bytes(data[end:])]
    assert path.read_bytes()[end:] == bytes(SEGMENT_BYTES - end)
    put(again, numbered(1, 3))
    assert read_all(again) == numbered(4)


def test_s09_what_was_about_to_be_flushed_is_a_torn_tail_and_no_damage(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    put(store, numbered(3))
    flush_log(store)
    end = put(store, [b"torn"])
    store.plan_flush()
    crash(store)
    path = tmp_path / "commitlog" / "0".zfill(20)
    data = bytearray(path.read_bytes())
    data[data.index(b"torn")] ^= 1
    path.write_bytes(data)
    result = new_store().open()
    assert (result.end, result.damages) == (end, [])


def test_s09_a_manifest_that_is_ahead_of_the_disk_does_not_hide_a_torn_tail(
    new_store: OpenStore, store: MessageStore
) -> None:
    put_all(store, numbered(40))
    flush_log(store)
    flushed = store.flushed_end
    put_all(store, numbered(200, 40))
    # The broker does so after each segment's worth of records, flushed or not.
    store.dispatch()
    store.flush_derived()
    save_manifest(store)
    segments = [segment.path for segment in store._log.files.segments]
    crash(store)
    for path in segments:
        kept = path.read_bytes()[: max(flushed - int(path.name), 0)]
        path.write_bytes(kept.ljust(SEGMENT_BYTES, b"\0"))
    again = new_store()
    assert again.open().end == flushed
    assert read_all(again) == numbered(40)
    assert put(again, [b"next"]) == flushed
    assert read_all(again) == [*numbered(40), b"next"]


def test_s09_a_log_that_is_shorter_than_what_was_flushed_stops_the_start(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    put(store, [bytes(3000)])
    put(store, [bytes(3000)])
    flush_log(store)
    crash(store)
    (tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    with pytest.raises(StoreDirectoryError, match="written up to"):
        new_store().open()


def test_s09_what_another_broker_has_added_needs_no_checksums(
    open_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, numbered(3))
    crash(store)
    (tmp_path / "abort").write_text("4711")
    for path in (tmp_path / "rocketpy" / "checksums").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    again = open_store()
    assert read_all(again) == numbered(3)


def test_s15_no_record_of_a_refused_block_comes_back(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", CHECKSUMS, failing(errno.ENOSPC))
        with pytest.raises(StoreClosedError, match="No space left"):
            put(store, [b"1st", b"2nd"])
    # It replaces the first record, and ends where the second one starts.
    put(store, [b"new"])
    store.close()
    again = open_store()
    assert read_all(again) == [b"new"]


def test_f8_what_was_not_flushed_is_written_again_before_recovery_flushes_it(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    put(store, numbered(3))
    end = store.positions().log_end
    crash(store)
    steps: list[tuple[str, int, int]] = []

    def note_write(call: DiskCall) -> None:
        data, position = call.arguments
        steps.append(("write", position, len(data)))

    before_call(monkeypatch, "pwrite", LOG, note_write)
    before_call(monkeypatch, "fdatasync", LOG, lambda _call: steps.append(("flush", 0, 0)))
    new_store().open()
    assert steps == [("write", 0, end), ("flush", 0, 0)]


def test_s09_units_beyond_the_log_are_dropped(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    put(store, numbered(3))
    end = put(store, numbered(2, 3))
    crash(store)
    path = tmp_path / "commitlog" / "0".zfill(20)
    data = bytearray(path.read_bytes())
    data[end:] = bytes(len(data) - end)
    path.write_bytes(data)
    again = open_store()
    assert again.range_of(QUEUE) == QueueBounds(0, 3)
    put(again, [b"other"])
    assert read_all(again) == [*numbered(3), b"other"]


def test_a_deleted_topic_never_comes_back_into_one_of_the_same_name(
    open_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, numbered(5))
    unused = QueueKey(QUEUE.topic, QUEUE.queue_id + 1)
    put(store, numbered(2), unused)
    delete_topic(store, "TopicA")
    assert store.range_of(QUEUE) == QueueBounds(0, 0)
    put(store, [b"new"])
    crash(store)
    shutil.rmtree(tmp_path / "consumequeue" / "TopicA")
    again = open_store()
    assert read_all(again) == [b"new"]
    # No new record conflicts with the old messages here.
    assert again.range_of(unused) == QueueBounds(0, 0)


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
        store = store_in(tmp_path)
        with pytest.raises(StoreLockedError, match="another broker"):
            store.open()
        holder.communicate("")


@pytest.mark.parametrize("name", ["notes.txt", "0000000000000000409"])
def test_a_foreign_file_in_the_log_folder_stops_the_start_and_is_left_alone(
    new_store: OpenStore, tmp_path: Path, name: str, store: MessageStore
) -> None:
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
    wrong = "created with commit log segments of 4096 bytes, not 8192"
    with pytest.raises(StoreDirectoryError, match=wrong):
        new_store(segment_bytes=8192).open()


@pytest.mark.parametrize("name", ["deletedTopics.json", "emptiedTopics.json"])
def test_unreadable_marks_of_deleted_topics_stop_the_start(
    new_store: OpenStore, tmp_path: Path, name: str
) -> None:
    marks = tmp_path / "config" / name
    marks.parent.mkdir()
    for content in ("{", "[]", '{"T": "x"}'):
        marks.write_text(content)
        with pytest.raises(StoreDirectoryError, match=rf"{name}: cannot be read"):
            new_store().open()
        assert marks.read_text() == content
