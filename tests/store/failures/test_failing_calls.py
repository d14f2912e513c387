"""Failing system calls below a whole store: errors, kept data, and continued work."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from rocketpy_broker.errors import StoreBusyError, StoreClosedError, StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.index.dispatch import WAITING_KEYS_MAX
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.errors import StoreReadError
from tests.support.blocks import wire_block
from tests.support.descriptors import open_below
from tests.support.store.disk_calls import CHECKSUMS, before_call, failing
from tests.support.store.messages import QUEUE, flush_log, numbered, put, read_all, save_manifest
from tests.support.store.planted_faults import FIRST
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash, store_in


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken(*_: object) -> NoReturn:
    raise OSError(errno.EIO, "Input/output error")


def put_keyed(store: MessageStore, key: str) -> None:
    store.append(QUEUE, wire_block(QUEUE.topic, [b"keyed"], keys=[key]).parsed())


def found_by(store: MessageStore, key: str) -> int:
    return len(store.messages.by_key(QUEUE.topic, key, 0, 1 << 60, 64))


def test_f07_a_record_whose_checksum_has_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(2))
    end = store.positions().log_end
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", CHECKSUMS, failing(errno.ENOSPC))
        with pytest.raises(StoreClosedError, match="nothing was stored"):
            put(store, [b"lost" * 50])
    assert not (tmp_path / "commitlog" / FIRST).read_bytes()[end:].strip(b"\0")
    assert put(store, numbered(1, 2)) == end
    assert read_all(store) == numbered(3)


def test_f07_a_sparse_copy_that_cannot_get_its_blocks_stops_the_start(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"segment_bytes": 1 << 20}
    store = new_store(**sizes)
    store.open()
    put(store, numbered(2))
    store.close()
    path = tmp_path / "commitlog" / FIRST
    content = path.read_bytes().rstrip(b"\0")
    with path.open("wb") as file:
        file.write(content)
        file.truncate(1 << 20)
    before = open_below(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        with pytest.raises(OSError, match="No space left"):
            new_store(**sizes).open()
    assert open_below(tmp_path) == before
    again = new_store(**sizes)
    again.open()
    assert read_all(again) == numbered(2)


def test_f08_a_disk_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = Segment.create(tmp_path, 0, SEGMENT_BYTES)
    segment.write(100, memoryview(b"x"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "lseek", broken)
        with pytest.raises(OSError, match="Input/output"):
            segment.clear_from(0)
    assert segment.used_end(0) == 101
    segment.close()


def test_f08_after_a_failed_flush_of_derived_files_none_is_flushed_again(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(5))
    checkpoint = tmp_path / "checkpoint"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            store.flush_derived()
    store.flush_derived()
    assert not checkpoint.exists()
    store.close()
    assert (tmp_path / "abort").exists()
    again = new_store()
    assert again.open().abnormal
    assert read_all(again) == numbered(5)


def test_f08_a_manifest_vouches_only_for_what_was_flushed(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    path = tmp_path / "rocketpy" / "manifest.json"
    before = path.read_bytes()
    put(store, numbered(5))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            save_manifest(store)
    save_manifest(store)
    assert path.read_bytes() == before
    crash(store)
    again = new_store()
    assert again.open().units_dispatched == 5
    assert read_all(again) == numbered(5)


def test_f08_a_start_writes_again_what_looks_right_but_may_not_be_on_the_disk(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Covers a start without a manifest."""
    put(store, numbered(5))
    crash(store)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    written: set[str] = set()
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, position: int) -> int:
        written.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", noted)
    new_store().open()
    for name in ("commitlog", "consumequeue/TopicA/2", "rocketpy/checksums"):
        assert str(tmp_path / name / FIRST) in written


def test_f08_a_unit_that_never_got_to_the_disk_is_an_error_and_passes_no_message_over(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(5))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            store.flush_derived()
    assert read_all(store) == numbered(5)
    # As if the system had dropped the page, which it takes for written.
    path = tmp_path / "consumequeue" / "TopicA" / "2" / FIRST
    path.write_bytes(path.read_bytes()[:40].ljust(path.stat().st_size, b"\0"))
    with pytest.raises(StoreReadError, match="Input/output"):
        read_all(store)
    crash(store)
    again = open_store()
    assert read_all(again) == numbered(5)


def test_f08_a_start_that_cannot_flush_what_a_killed_broker_left_ends_with_the_error(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(5))
    crash(store)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file_system", broken)
        with pytest.raises(OSError, match="Input/output"):
            new_store().open()
    again = new_store()
    assert again.open().abnormal
    assert read_all(again) == numbered(5)


def test_s15_a_stop_with_messages_that_have_no_unit_yet_counts_as_a_crash(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", "*/consumequeue/*", failing(errno.ENOSPC))
        put(store, numbered(3))
        store.close()
    assert (tmp_path / "abort").exists()
    again = new_store()
    assert again.open().units_dispatched == 3
    assert read_all(again) == numbered(3)


def test_s05_keys_wait_while_the_index_cannot_grow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: MessageStore
) -> None:
    put_keyed(store, "order")
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", "*/index/*", failing(errno.ENOSPC))
        assert found_by(store, "order") == 0
    assert "1 key waits" in caplog.text
    assert found_by(store, "order") == 1


def test_s05_many_keys_are_entered_without_being_asked_for(
    open_store: OpenStore,
) -> None:
    store = open_store(segment_bytes=4 << 20, queue_file_bytes=200_000)
    count, behind = WAITING_KEYS_MAX // 2, []
    for number in range(3):
        keys = [f"k{number}-{row}" for row in range(count)]
        store.append(QUEUE, wire_block(QUEUE.topic, [b""] * count, keys=keys).parsed())
        behind.append(store.index.is_behind)
    assert behind == [True, False, True]


@pytest.mark.parametrize(("before", "after"), [(100, 1000), (1000, 100)])
def test_s05_an_index_of_other_sizes_is_made_anew(
    new_store: OpenStore, clock: ManualClock, before: int, after: int
) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH, index_slot_count=before)
    store.open()
    put_keyed(store, "order")
    store.close()
    clock.advance(60_000)
    again = new_store(FlushDiskType.SYNC_FLUSH, index_slot_count=after)
    result = again.open()
    assert any("index" in doubt for doubt in result.in_doubt)
    assert found_by(again, "order") == 1
    again.close()
    third = new_store(FlushDiskType.SYNC_FLUSH, index_slot_count=after)
    assert third.open().in_doubt == []
    assert found_by(third, "order") == 1


def test_f09_a_store_with_too_much_on_its_way_to_the_disk_says_that_it_is_busy(
    open_store: OpenStore,
) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH, unflushed_bytes_max=500)
    put(store, [bytes(600)])
    with pytest.raises(StoreBusyError):
        put(store, numbered(1))
    assert store.statistics.put_failed_count == 1
    flush_log(store)
    put(store, numbered(1))


def test_b04_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"")
    store = store_in(place)
    with pytest.raises(StoreDirectoryError, match="choose a directory that you may write to"):
        store.open()


def test_b04_a_store_of_a_newer_version_is_refused_and_left_as_it_is(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, numbered(1))
    store.close()
    path = tmp_path / "rocketpy" / "manifest.json"
    newer = path.read_text().replace('"version": 1', '"version": 2')
    path.write_text(newer)
    with pytest.raises(StoreDirectoryError, match="use the version of rocketpy that wrote it"):
        new_store().open()
    assert path.read_text() == newer


def test_a_gap_between_segments_stops_the_start_and_both_sides_stay(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    for _ in range(3):
        put(store, [bytes(3000)])
    store.close()
    names = sorted((tmp_path / "commitlog").iterdir())
    names[1].unlink()
    with pytest.raises(StoreDirectoryError, match=f"should start at {SEGMENT_BYTES}"):
        new_store().open()
    assert sorted((tmp_path / "commitlog").iterdir()) == [names[0], names[2]]


def test_s10_a_segment_made_ahead_is_used_dropped_or_found_again(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Asserts that its checksums are preallocated, too: the event loop waits for neither file."""
    folder, checksums = tmp_path / "commitlog", tmp_path / "rocketpy" / "checksums"
    store = open_store()
    store.preallocate()
    assert list(folder.iterdir()) == list(checksums.iterdir()) == []
    put(store, [bytes(3000)])
    store.preallocate()
    store.preallocate()
    assert len(list(folder.iterdir())) == len(list(checksums.iterdir())) == 2
    inodes = [max(each.iterdir()).stat().st_ino for each in (folder, checksums)]
    put(store, [bytes(3000)])
    assert [max(each.iterdir()).stat().st_ino for each in (folder, checksums)] == inodes
    store.preallocate()
    assert len(list(folder.iterdir())) == len(list(checksums.iterdir())) == 3
    before = open_below(tmp_path)
    store.close()
    assert len(list(folder.iterdir())) == len(list(checksums.iterdir())) == 2
    assert open_below(tmp_path) < before
    crashed = open_store()
    open_count = open_below(tmp_path)
    crashed.preallocate()
    crash(crashed)
    assert open_below(tmp_path) < open_count
    assert len(list(folder.iterdir())) == 3
    again = open_store()
    assert len(read_all(again)) == 2


def test_s07_a_flush_that_comes_after_the_stop_does_nothing(
    monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    put(store, numbered(2))
    plan = store.plan_flush()
    store.close()
    monkeypatch.setattr(os, "fdatasync", broken)
    plan.run()


def test_strangers_among_the_checksums_are_left_alone(
    new_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, store: MessageStore
) -> None:
    put(store, numbered(2))
    store.close()
    stranger = tmp_path / "rocketpy" / "checksums" / "notes.txt"
    stranger.write_text("mine")
    again = new_store()
    assert again.open().in_doubt == []
    assert "is none of the store's files and is ignored" in caplog.text
    assert stranger.read_text() == "mine"


def test_s05_the_time_of_what_is_no_record_counts_as_none(
    clock: ManualClock, store: MessageStore
) -> None:
    place = put(store, [b"x"])
    assert store._log.store_timestamp_ms_at(place) == clock.now_ms()
    assert store._log.store_timestamp_ms_at(place + 1) == 0
    assert store._log.store_timestamp_ms_at(90 * SEGMENT_BYTES) == 0


def test_s05_keys_of_one_hash_are_told_apart(store: MessageStore) -> None:
    put_keyed(store, "Aa")
    assert [found_by(store, key) for key in ("Aa", "BB")] == [1, 0]
