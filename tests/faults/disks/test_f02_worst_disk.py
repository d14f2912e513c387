"""Power cuts on the worst disk: it keeps only the flushed bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.queues.units import UNIT_BYTES
from rocketpy_broker.store.values import QueueBounds
from tests.faults.disks.simulated_disk import SimulatedDisk
from tests.faults.images import image_of
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    flush_log,
    put,
    read_all,
    remove_oldest_segment,
)
from tests.support.store.stores import (
    QUEUE_FILE_BYTES,
    OpenStore,
    clock,
    crash,
    new_store,
    open_store,
)

__all__ = ["clock", "new_store", "open_store"]


class WorstChance(random.Random):
    """A choice by which no unflushed page survives."""

    def random(self) -> float:
        return 0.999


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f2_what_was_flushed_is_all_there(
    new_store: OpenStore, tmp_path: Path, flush: FlushDiskType
) -> None:
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = new_store(flush)
        store.open()
        for number in range(30):
            put(store, [b"%d" % number * 50])
            flush_log(store)
            if number == 10:
                store.flush_derived()
        put(store, [b"not flushed"])
    crash(store)
    disk.cut_power(WorstChance())
    again = new_store(flush)
    result = again.open()
    assert result.damages == []
    assert read_all(again) == [b"%d" % number * 50 for number in range(30)]


def test_f2_queues_whose_new_files_are_lost_with_their_names_are_rebuilt(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Covers several queue files that are created before their first flush, without a wait."""
    bodies = [b"%d" % number * 50 for number in range(35)]
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = open_store(FlushDiskType.SYNC_FLUSH)
        for body in bodies:
            put(store, [body])
            flush_log(store)
    files = list(store.config.folder.glob("consumequeue/*/*/*"))
    crash(store)
    disk.cut_power(WorstChance())
    left = list(store.config.folder.glob("consumequeue/*/*/*"))
    assert len(left) < len(files)
    again = open_store(FlushDiskType.SYNC_FLUSH)
    assert read_all(again) == bodies


def test_s10_the_log_is_not_cleaned_of_what_no_queue_on_the_disk_counts_yet(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Covers a power cut that lets a queue restart at 0, below its consumers' offsets."""
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = open_store(FlushDiskType.SYNC_FLUSH)
        put(store, [b"one"], OTHER)
        while len(store._log.files.segments) < 2:
            put(store, [bytes(200)])
            flush_log(store)
        remove_oldest_segment(store)
    crash(store)
    disk.cut_power(WorstChance())
    again = open_store(FlushDiskType.SYNC_FLUSH)
    assert again.next_offset(OTHER) == 1


def test_s10_a_queue_that_a_killed_broker_made_is_on_the_disk_behind_the_next_start(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Asserts that the next start finds the queue and cleans the log of its messages."""
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = open_store(FlushDiskType.SYNC_FLUSH)
        put(store, [b"one"], OTHER)
        flush_log(store)
        crash(store)
        store = open_store(FlushDiskType.SYNC_FLUSH)
        while len(store._log.files.segments) < 2:
            put(store, [bytes(200)])
            flush_log(store)
        remove_oldest_segment(store)
    crash(store)
    disk.cut_power(WorstChance())
    again = open_store(FlushDiskType.SYNC_FLUSH)
    assert again.next_offset(OTHER) == 1


@pytest.mark.parametrize("killed", ["serving", "before it was serving"])
def test_f2_all_that_a_start_finds_is_on_the_disk_when_it_is_done(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """Covers any state of the last run: files without a flush, or a name."""
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        first = open_store()
        for key in (QUEUE, OTHER):
            put(first, [b"of a queue"], key)
        first.dispatch()
        crash(first)
        if killed == "before it was serving":
            # As during the first start after another broker's clean stop.
            (tmp_path / "abort").unlink()
        for name in ("config/topics.json", "rocketpy/staging/00000000000000000000"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("written, and not flushed")
        second = open_store()
    crash(second)
    found = image_of(tmp_path)
    disk.cut_power(WorstChance())
    assert image_of(tmp_path) == found


def test_s10_a_log_whose_only_segment_a_power_cut_has_emptied_begins_where_it_did(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Asserts that the queues' next offsets are kept and later starts succeed."""
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = open_store(FlushDiskType.SYNC_FLUSH)
        count = 0
        while len(store._log.files.segments) < 2:
            flush_log(store)
            put(store, [bytes(200)])
            count += 1
        remove_oldest_segment(store)
    crash(store)
    disk.cut_power(WorstChance())
    left = QueueBounds(count - 1, count - 1)
    for _ in range(2):
        again = open_store(FlushDiskType.SYNC_FLUSH)
        assert again.positions().log_begin == store.config.commit_log_segment_bytes
        assert again.range_of(QUEUE) == left
        again.close()
    again = open_store(FlushDiskType.SYNC_FLUSH)
    put(again, [b"next"])
    flush_log(again)
    assert again.range_of(QUEUE) == QueueBounds(count - 1, count)
    assert read_all(again) == [b"next"]


def test_s10_a_queue_whose_only_file_a_power_cut_has_emptied_goes_on_where_it_was(
    open_store: OpenStore, tmp_path: Path
) -> None:
    """Covers a queue with its older files removed, as their messages were cleaned."""
    disk = SimulatedDisk(tmp_path)
    per_file = QUEUE_FILE_BYTES // UNIT_BYTES
    with disk.watched():
        store = open_store(FlushDiskType.ASYNC_FLUSH)
        for number in range(per_file):
            put(store, [b"%d" % number])
        while len(store._log.files.segments) < 2:
            put(store, [bytes(200)], OTHER)
        flush_log(store)
        put(store, [b"lost"])
        store.flush_derived()
        remove_oldest_segment(store)
    left = list(store.config.folder.glob(f"consumequeue/{QUEUE.topic}/{QUEUE.queue_id}/*"))
    assert [int(path.name) for path in left] == [QUEUE_FILE_BYTES]
    crash(store)
    disk.cut_power(WorstChance())
    for _ in range(2):
        again = open_store(FlushDiskType.ASYNC_FLUSH)
        assert again.range_of(QUEUE) == QueueBounds(per_file, per_file)
        again.close()
    again = open_store(FlushDiskType.ASYNC_FLUSH)
    put(again, [b"next"])
    assert again.range_of(QUEUE) == QueueBounds(per_file, per_file + 1)
    assert read_all(again) == [b"next"]


def test_s06_a_new_queue_waits_for_no_disk(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asserts that a new queue needs no fsync: 620 ms were measured for one new file."""
    store = open_store(FlushDiskType.ASYNC_FLUSH)
    put(store, [b"makes the log's first segment"])
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _descriptor: pytest.fail("waits for the disk"))
        put(store, [b"another"], OTHER)
        store.dispatch()
    assert read_all(store, OTHER) == [b"another"]
