"""Contents of a store's directory: foreign, newer, missing or wrong files are named in errors.

In each case nothing is removed or overwritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files.checkpoint import FILE_BYTES, StoreCheckpoint
from rocketpy_broker.store.log.checksums import ENTRY_BYTES
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.foreign import CHECKPOINT_MARGIN_MS
from rocketpy_broker.store.values import QueueBounds, ReadLimits
from tests.support.store.messages import NO_END, QUEUE, flush_log, numbered, put, put_all, read_all
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash

SEGMENT = "0".zfill(20)


def contents(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture
def stopped(open_store: OpenStore, tmp_path: Path) -> Path:
    """Returns the directory of a store with forty messages that was stopped cleanly."""
    store = open_store()
    put_all(store, numbered(40))
    store.close()
    return tmp_path


def test_a_manifest_of_a_newer_version_is_not_guessed_at(
    new_store: OpenStore, stopped: Path
) -> None:
    path = stopped / "rocketpy" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    before = contents(stopped)
    with pytest.raises(
        StoreDirectoryError, match=r"has version 99.*use the version of rocketpy that wrote it"
    ):
        new_store().open()
    assert contents(stopped) == before


def test_log_files_that_are_missing_stop_the_start(new_store: OpenStore, stopped: Path) -> None:
    last = max((stopped / "commitlog").iterdir())
    kept = last.rename(stopped / "kept")
    with pytest.raises(StoreDirectoryError, match="the log was written up to") as caught:
        new_store().open()
    assert "restore the missing files" in str(caught.value)
    kept.rename(last)
    store = new_store()
    store.open()
    assert read_all(store) == numbered(40)


def test_messages_whose_files_are_lost_can_be_given_up(new_store: OpenStore, stopped: Path) -> None:
    segments = sorted((stopped / "commitlog").iterdir())
    assert len(segments) > 1
    for path in segments[1:]:
        path.unlink()
    for path in sorted((stopped / "rocketpy").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (stopped / "rocketpy").rmdir()
    store = new_store()
    result = store.open()
    left = read_all(store)
    assert 0 < len(left) < 40
    assert left == numbered(len(left))
    assert result.end <= store.config.commit_log_segment_bytes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"commitlog/{9 * 4096:020d}", "should start at"),
        ("commitlog/notes.txt", "is not named by 20 digits"),
        ("commitlog/" + "1".zfill(20), "has 5 bytes instead of 4096"),
    ],
)
def test_a_foreign_file_in_the_log_is_named_and_left_alone(
    new_store: OpenStore, stopped: Path, name: str, words: str
) -> None:
    content = bytes(4096) if "start" in words else b"hello"
    (stopped / name).write_bytes(content)
    before = contents(stopped)
    with pytest.raises(StoreDirectoryError, match=words) as caught:
        new_store().open()
    assert caught.value.path == stopped / name
    assert contents(stopped) == before


def test_a_directory_that_cannot_be_written_is_named(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    store = new_store()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreDirectoryError, match=r"Permission denied.*you may write to"):
        store.open()


def test_s08_the_checkpoint_follows_what_is_on_disk(
    open_store: OpenStore, clock: ManualClock, tmp_path: Path
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    begin_ms = clock.now_ms()
    put(store, numbered(1))
    flush_log(store)
    clock.advance(10)
    second = put(store, numbered(1, 1))
    store.dispatch()
    store.flush_derived()
    saved = StoreCheckpoint(tmp_path / "checkpoint")
    saved.load()
    # The second message is only in the log, and its flush is not confirmed.
    assert (saved.physic_msg_timestamp_ms, saved.logics_msg_timestamp_ms) == (begin_ms, begin_ms)
    assert saved.logics_physical_offset == second
    assert saved.index_msg_timestamp_ms == 0
    assert (tmp_path / "checkpoint").stat().st_size == FILE_BYTES
    store.close()
    saved.load()
    assert saved.physic_msg_timestamp_ms == saved.logics_msg_timestamp_ms == begin_ms + 10
    assert saved.logics_physical_offset == store.positions().log_end


def test_s08_the_checkpoint_names_no_queue_entry_whose_record_may_not_be_on_disk(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(FlushDiskType.ASYNC_FLUSH)
    put(store, numbered(1))
    flush_log(store)
    second = put(store, numbered(1, 1))
    store.dispatch()
    assert store.range_of(QUEUE) == QueueBounds(0, 2)
    store.flush_derived()
    saved = StoreCheckpoint(tmp_path / "checkpoint")
    saved.load()
    assert saved.logics_physical_offset == second


def test_s08_a_start_takes_back_what_the_checkpoint_says_of_a_longer_log(
    open_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, numbered(3))
    store.close()
    log_end = store.positions().log_end
    longer = StoreCheckpoint(tmp_path / "checkpoint")
    longer.load()
    longer.logics_physical_offset = longer.confirm_physical_offset = 1 << 30
    longer.save()
    again = open_store()
    crash(again)
    found = StoreCheckpoint(tmp_path / "checkpoint")
    found.load()
    assert (found.logics_physical_offset, found.confirm_physical_offset) == (log_end, log_end)
    # The next flush writes its times.
    assert found.logics_msg_timestamp_ms == longer.logics_msg_timestamp_ms


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * FILE_BYTES])
def test_s08_a_checkpoint_that_says_nothing_counts_as_zeros(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    checkpoint = StoreCheckpoint(path)
    checkpoint.load()
    assert checkpoint.physic_msg_timestamp_ms == checkpoint.confirm_physical_offset == 0
    checkpoint.physic_msg_timestamp_ms = 7
    checkpoint.save()
    again = StoreCheckpoint(path)
    again.load()
    assert again.physic_msg_timestamp_ms == 7


def rocketmqs(folder: Path, change: Callable[[Path], None]) -> None:
    """Changes the store to look as if RocketMQ wrote it and crashed."""
    for path in sorted((folder / "rocketpy").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (folder / "rocketpy").rmdir()
    (folder / "abort").write_text("4711")
    change(folder)


@pytest.mark.parametrize(
    ("is_flushed", "logics_segment"),
    [(True, None), (False, None), (False, 0), (False, 1), (True, 0)],
)
def test_s08_in_a_crashed_log_of_rocketmq_the_checkpoint_tells_where_the_scan_begins(
    new_store: OpenStore,
    clock: ManualClock,
    tmp_path: Path,
    is_flushed: bool,
    logics_segment: int | None,
    store: MessageStore,
) -> None:
    """Checks the scan's start: RocketMQ 5.5 uses the queues' position, older ones use times.

    RocketMQ 5.5 also uses times where it has written no position.
    """
    put(store, numbered(1))
    bad = put(store, [b"x" * 30])
    put(store, numbered(2, 1))
    put(store, [bytes(SEGMENT_BYTES - 500)])  # in the next segment
    store.close()

    def break_record(folder: Path) -> None:
        path = folder / "commitlog" / SEGMENT
        data = bytearray(path.read_bytes())
        data[bad + 95] ^= 1
        path.write_bytes(data)
        checkpoint = StoreCheckpoint(folder / "checkpoint")
        checkpoint.physic_msg_timestamp_ms = clock.now_ms() + CHECKPOINT_MARGIN_MS
        checkpoint.logics_msg_timestamp_ms = checkpoint.physic_msg_timestamp_ms - (not is_flushed)
        if logics_segment is not None:
            checkpoint.logics_physical_offset = bad + 1 if logics_segment == 0 else SEGMENT_BYTES
        checkpoint.save()

    rocketmqs(tmp_path, break_record)
    again = new_store()
    result = again.open()
    assert result.abnormal
    if is_flushed or logics_segment == 1:
        assert [damage.offset for damage in result.damages] == [bad]
        assert again.range_of(QUEUE) == QueueBounds(0, 5)
        # The reader skips the damaged record's place in the queue.
        found = again.get_message(QUEUE, 2, NO_END, ReadLimits())
        assert found.next_offset == 4
    else:
        assert (result.damages, result.end) == ([], bad)
        assert again.range_of(QUEUE) == QueueBounds(0, 1)


def test_s12_cold_data_is_given_in_smaller_pieces(open_store: OpenStore) -> None:
    store = open_store(segment_bytes=1 << 20, queue_file_bytes=20_000)
    put(store, [bytes(3_000)] * 100)
    hot = store.get_message(QUEUE, 0, NO_END, ReadLimits())
    store._reader.memory_bytes = 0
    cold = store.get_message(QUEUE, 0, NO_END, ReadLimits())
    by_size = store.get_message(QUEUE, 0, NO_END, ReadLimits(cold_count_max=50))
    assert (len(hot.sizes), hot.is_cold) == (32, False)
    assert (len(cold.sizes), cold.is_cold) == (8, True)
    assert len(by_size.sizes) == 65_536 // int(by_size.sizes[0])
    bulk = store.get_message(QUEUE, 0, NO_END, ReadLimits.of_bytes(1 << 20))
    assert len(bulk.sizes) == 100


def test_checksums_with_holes_and_garbage_keep_what_is_sound(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(segment_bytes=65_536)
    for number in range(30):
        put(store, numbered(1, number))
    flush_log(store)
    crash(store)
    path = tmp_path / "rocketpy" / "checksums" / SEGMENT
    data = bytearray(path.read_bytes())
    data[5 * ENTRY_BYTES : 8 * ENTRY_BYTES] = bytes(3 * ENTRY_BYTES)
    data[12 * ENTRY_BYTES : 13 * ENTRY_BYTES] = b"\x7f" * ENTRY_BYTES
    whole = path.read_bytes()
    path.write_bytes(data)
    again = open_store(segment_bytes=65_536)
    assert read_all(again) == numbered(30)
    again.close()
    count = 30 * ENTRY_BYTES
    assert path.read_bytes()[:count] == whole[:count]
    assert np.count_nonzero(np.frombuffer(path.read_bytes()[count:], np.uint8)) == 0


def test_a_file_closed_twice_takes_no_other_files_descriptor_with_it(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, 0, 4096)
    segment.close()
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    segment.close()
    segment.flush()
    assert os.fstat(other).st_size == 0
    os.close(other)
