"""Adjacent damage: one finding, one log line and one file, at a start as at a read."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, StoreCheck
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.quarantine import NAMED_MAX
from rocketpy_broker.store.values import QueueBounds, ReadLimits
from tests.support.store.messages import NO_END, QUEUE, flush_log, numbered, put, read_all
from tests.support.store.planted_faults import CHECKSUM_BYTES, FIRST, flip, write_at
from tests.support.store.stores import OpenStore, store_in

SIZES = {"segment_bytes": 1 << 20, "queue_file_bytes": 200_000}
BLOCK = 100
COUNT = 3_000


@pytest.fixture
def store(open_store: OpenStore) -> MessageStore:
    """Returns an open store with COUNT flushed messages, in blocks."""
    store = open_store(FlushDiskType.SYNC_FLUSH, **SIZES)
    for number in range(0, COUNT, BLOCK):
        put(store, numbered(BLOCK, number))
    flush_log(store)
    return store


def positions(folder: Path) -> list[int]:
    """Returns the positions of the records in the first segment, from their checksums."""
    data = (folder / "rocketpy" / "checksums" / FIRST).read_bytes()
    entries = np.frombuffer(data, ">i4").reshape(-1, CHECKSUM_BYTES // 4)
    found: list[int] = entries[entries[:, 1] > 0, 0].tolist()
    assert len(found) == COUNT
    return found


def damaged_files(folder: Path) -> list[Path]:
    return sorted((folder / "rocketpy" / "quarantine").glob("*.damaged-*"))


def error_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def faults_of(folder: Path) -> list[Fault]:
    check = StoreCheck(folder, StoreSizes.of(folder))
    return [found for found in check.run() if isinstance(found, Fault)]


def copied(folder: Path, copy: Path) -> MessageStore:
    shutil.copytree(folder, copy, symlinks=True)
    return store_in(copy, None, FlushDiskType.SYNC_FLUSH, **SIZES)


def test_f05_a_copy_whose_log_is_behind_its_queues_has_one_damage(
    store: MessageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = store.positions().log_end
    copy = tmp_path / "copy"
    again = copied(store.config.folder, copy)
    begin = positions(copy)[COUNT // 3]
    # The log was copied before.
    write_at(copy / "commitlog" / FIRST, begin, bytes(end - begin))
    [fault] = [one for one in faults_of(copy) if one.path.parent.name == "commitlog"]
    assert (fault.offset, f"{end - begin} bytes" in fault.text) == (begin, True)
    caplog.clear()
    result = again.open()
    assert [(one.offset, one.length) for one in result.damages] == [(begin, end - begin)]
    [path] = damaged_files(copy)
    assert path.stat().st_size == end - begin
    assert len(error_lines(caplog)) == 1
    assert read_all(again) == numbered(COUNT // 3)
    put(again, [b"new"])
    flush_log(again)
    again.close()
    assert faults_of(copy) == []


@pytest.mark.parametrize("queues", ["as they were", "lost"])
def test_f05_neighbours_that_are_damaged_one_by_one_keep_their_offsets(
    store: MessageStore,
    new_store: OpenStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    queues: str,
) -> None:
    store.close()
    places = positions(tmp_path)
    first, last = 1_000, 1_499
    for place in places[first : last + 1]:
        flip(tmp_path / "commitlog" / FIRST, place + 95)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    if queues == "lost":
        shutil.rmtree(tmp_path / "consumequeue")
    caplog.clear()
    again = new_store(**SIZES)
    result = again.open()
    [damage] = result.damages
    assert (damage.offset, damage.length) == (places[first], places[last + 1] - places[first])
    assert len(damaged_files(tmp_path)) == len(error_lines(caplog)) == 1
    assert again.range_of(QUEUE) == QueueBounds(0, COUNT)
    found = again.get_message(QUEUE, last + 1, NO_END, ReadLimits.of_bytes(1 << 20))
    assert len(found.sizes) == COUNT - last - 1
    again.close()
    assert faults_of(tmp_path) == []


def test_f05_damage_up_to_a_blank_record_leaves_the_blank_record(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(segment_bytes=4096)
    store.open()
    places = [put(store, [bytes(900)]) for _ in range(7)]
    assert places[4] == 4096
    flush_log(store)
    store.close()
    for place in places[2:4]:
        flip(tmp_path / "commitlog" / FIRST, place + 95)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    again = new_store(segment_bytes=4096)
    [damage] = again.open().damages
    assert (damage.offset, damage.length) == (places[2], 2 * (places[3] - places[2]))
    assert again.range_of(QUEUE) == QueueBounds(0, 7)


def test_f05_scattered_damage_is_named_so_often_and_then_counted(
    store: MessageStore, new_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.close()
    for place in positions(tmp_path)[10:400:3]:
        flip(tmp_path / "commitlog" / FIRST, place + 95)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    caplog.clear()
    again = new_store(**SIZES)
    result = again.open()
    assert len(result.damages) == len(damaged_files(tmp_path)) == 130
    lines = error_lines(caplog)
    assert NAMED_MAX < len(lines) <= NAMED_MAX + 3
    assert lines[-1].startswith("130 places of the log were damaged, of which the first 20")


@pytest.mark.parametrize("count_max", [1, 32])
def test_f05_neighbours_that_reads_meet_are_one(
    store: MessageStore,
    open_store: OpenStore,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    count_max: int,
) -> None:
    store.close()
    again = open_store(**SIZES)
    first, last = 500, 899
    for place in positions(tmp_path)[first : last + 1]:
        flip(tmp_path / "commitlog" / FIRST, place + 95)
    caplog.clear()
    offset, got = 0, 0
    while offset < COUNT:
        found = again.get_message(QUEUE, offset, NO_END, ReadLimits(count_max))
        got += len(found.sizes)
        offset = found.next_offset
    damaged = last + 1 - first
    assert (got, again.statistics.corrupt_record_count) == (COUNT - damaged, damaged)
    assert len(damaged_files(tmp_path)) == len(error_lines(caplog)) == 1
    again.close()
    assert faults_of(tmp_path) == []
