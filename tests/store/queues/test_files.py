"""Files of queues: the number of open ones, the cost of one, reads of a removed one."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.check.read_only import ReadOnlyQueue
from rocketpy_broker.store.queues import open_files as module
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.errors import StoreReadError
from rocketpy_broker.store.queues.files import AHEAD_BYTES_MAX, BLOCK_BYTES
from rocketpy_broker.store.queues.open_files import SINGLE_FLUSHES_MAX, OpenFiles
from rocketpy_broker.store.queues.units import BLANK_SIZE, UNIT, Units
from rocketpy_broker.store.values import FilePrefix
from tests.support.descriptors import open_below
from tests.support.store.disk_calls import before_call

FILE_BYTES = 6_000_000


def units(count: int, first: int = 0) -> Units:
    made = np.zeros(count, UNIT)
    made["physical_offset"] = (np.arange(count) + first) * 100
    made["size"] = 100
    return made


@pytest.fixture
def few_open(monkeypatch: pytest.MonkeyPatch) -> OpenFiles:
    """Returns open files for a process with few descriptors."""
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (0, 0))
    return OpenFiles()


def test_f17_a_file_takes_room_ahead_of_what_is_written_and_no_more(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "T" / "0", FILE_BYTES)
    for count in (1, 203, 1, 5_000, 100_000, 194_795):
        queue.append(queue.max_offset, units(count, queue.max_offset))
        [path] = (tmp_path / "T" / "0").iterdir()
        status, used = path.stat(), queue.max_offset * UNIT.itemsize
        assert status.st_size == FILE_BYTES
        allocated = status.st_blocks * 512
        ahead = min(used + BLOCK_BYTES, AHEAD_BYTES_MAX)
        assert used <= allocated <= used + ahead + 2 * BLOCK_BYTES
    assert used == FILE_BYTES


def test_f17_room_goes_on_into_the_next_file(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "0", 200)
    queue.append(0, units(5))
    queue.reserve(25)
    assert len(list(tmp_path.glob("0/*"))) == 3
    assert list(queue.prefix_crcs(1 << 40)) == ["0".zfill(20)]
    queue.append(5, units(20, 5))
    assert queue.max_offset == 25
    assert [prefix.length for prefix in queue.prefix_crcs(1 << 40).values()] == [200, 200, 100]


def test_f17_few_files_are_open_however_many_queues_there_are(
    tmp_path: Path, few_open: OpenFiles
) -> None:
    queues = [ConsumeQueue(tmp_path / str(number), 200, few_open) for number in range(20)]
    before = open_below(tmp_path)
    for _ in range(3):
        for queue in queues:
            queue.append(queue.max_offset, units(1, queue.max_offset))
            assert open_below(tmp_path) - before <= module.OPEN_FILES_MIN
    for queue in queues:
        assert queue.units(0, 3)["physical_offset"].tolist() == [0, 100, 200]
        queue.close()
    assert len(few_open) == 0
    assert open_below(tmp_path) <= before


def test_f17_without_descriptors_another_file_is_closed_for_the_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OpenFiles()
    queues = [ConsumeQueue(tmp_path / str(number), 200, files) for number in range(5)]
    for queue in queues:
        queue.append(0, units(1))
    few, system = 3, os.open

    def scarce(path: str, *given: int, **named: int) -> int:
        if len(files) >= few:
            raise OSError(errno.EMFILE, "Too many open files")
        return system(path, *given, **named)

    monkeypatch.setattr(os, "open", scarce)
    for queue in queues:
        queue.append(1, units(11, 1))
        assert queue.units(0, 10)["size"].tolist() == [100] * 10
    files.flush(tmp_path)
    few = 0
    files.drop(queues[0]._files, queues[0]._files.bases)
    with pytest.raises(StoreReadError, match="Too many open files"):
        queues[0].units(0, 1)


@pytest.mark.parametrize("count", [3, SINGLE_FLUSHES_MAX + 1])
def test_f17_a_flush_looks_at_what_was_written_and_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    files = OpenFiles()
    queues = [ConsumeQueue(tmp_path / str(number), 200, files) for number in range(count)]
    flushed: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _descriptor: flushed.append("file"))
    whole = lambda _descriptor: flushed.append("file system")  # noqa: E731
    monkeypatch.setattr("rocketpy_broker.store.files.durable.sync_file_system", whole)
    for queue in queues:
        queue.append(0, units(1))
    files.flush(tmp_path)
    assert flushed == (["file"] * count if count <= SINGLE_FLUSHES_MAX else ["file system"])
    flushed.clear()
    files.flush(tmp_path)
    assert flushed == []
    queues[1].append(1, units(1, 1))
    queues[0].close()
    files.flush(tmp_path)
    assert flushed == ["file"]


def test_f08_a_flush_that_lacks_descriptors_is_made_up_for_and_one_that_failed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OpenFiles()
    queue = ConsumeQueue(tmp_path / "0", 200, files)
    queue.append(0, units(1))
    flushed: list[int] = []
    reason = errno.EMFILE

    def failing(descriptor: int) -> None:
        if reason:
            raise OSError(reason, os.strerror(reason))
        flushed.append(descriptor)

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(OSError, match="Too many open files"):
        files.flush(tmp_path)
    reason = 0
    files.flush(tmp_path)
    assert len(flushed) == 1
    queue.append(1, units(1, 1))
    reason = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        files.flush(tmp_path)
    reason = 0
    with pytest.raises(OSError, match="Input/output"):
        files.flush(tmp_path)
    assert len(flushed) == 1


def test_f15_units_of_a_file_that_was_taken_away_are_blank(tmp_path: Path) -> None:
    """Covers a reader that found the queue before its oldest file was removed."""
    files = OpenFiles()
    queue = ConsumeQueue(tmp_path / "0", 200, files)
    queue.append(0, units(15))
    queue._files.open_files.drop(queue._files, queue._files.bases)
    (tmp_path / "0" / "0".zfill(20)).unlink()
    assert queue.units(3, 15)["size"].tolist() == [BLANK_SIZE] * 7
    assert queue.units(10, 15)["size"].tolist() == [100] * 5


def test_f15_a_disk_that_cannot_be_read_is_an_error_and_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ConsumeQueue(tmp_path / "0", 200)
    queue.append(0, units(5))

    def broken(*_given: int) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StoreReadError, match=f"{tmp_path}/0 cannot be read"):
        queue.units(0, 1)


def test_a_queue_made_again_never_meets_the_files_of_the_one_before(tmp_path: Path) -> None:
    """Covers a flush that opens a file of a removed queue."""
    files = OpenFiles()
    old = ConsumeQueue(tmp_path / "0", 200, files)
    old.append(0, units(3))
    held = files.get(old._files, 0)
    old.close()
    (tmp_path / "0" / "0".zfill(20)).unlink()
    new = ConsumeQueue(tmp_path / "0", 200, files)
    new.append(0, units(1, 7))
    assert new.units(0, 3)["physical_offset"].tolist() == [700]
    assert os.fstat(held.descriptor).st_nlink == 0
    old._files.flush()
    with pytest.raises(StoreReadError, match="the queue is closed"):
        old.units(0, 1)


def test_f17_what_was_verified_for_is_known_without_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OpenFiles()
    queue = ConsumeQueue(tmp_path / "0", 200, files)
    queue.append(0, units(13))
    prefixes = queue.prefix_crcs(1 << 40)
    queue.close()
    names = os.listdir(tmp_path / "0")
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", None)
        patch.setattr(os, "scandir", None)
        again = ConsumeQueue.open(tmp_path / "0", 200, files, prefixes, names)
    ends = (again.min_offset, again.max_offset, again.physical_end)
    assert ends == (0, 13, 1300)
    monkeypatch.setattr(os, "pread", None)
    assert again.has_prefixes(prefixes)
    assert again.prefix_crcs(1 << 40) == prefixes
    again.append(13, units(9, 13))
    lengths = [prefix.length for prefix in again.prefix_crcs(1 << 40).values()]
    assert lengths == [200, 200, 40]


@pytest.mark.parametrize(
    "change",
    ["behind", "within", "next file", "first file", "length", "no file", "file size", "name"],
)
def test_f06_what_differs_from_what_was_verified_for_is_looked_at_as_a_whole(
    tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "0"
    queue = ConsumeQueue(folder, 200)
    queue.append(0, units(25))
    prefixes = queue.prefix_crcs(1 << 40)
    queue.truncate_from(23)
    short = queue.prefix_crcs(1 << 40)
    queue.close()
    wanted = short
    path = folder / "400".zfill(20)
    if change == "behind":
        with path.open("r+b") as file:
            file.seek(3 * UNIT.itemsize)
            file.write(units(1, 23).tobytes())
    elif change == "within":
        with path.open("r+b") as file:
            file.write(b"\1")
    elif change == "next file":
        (folder / "600".zfill(20)).write_bytes(units(10, 30).tobytes())
    elif change == "first file":
        wanted = {name: prefix for name, prefix in short.items() if name != "200".zfill(20)}
    elif change == "length":
        wanted = prefixes
    elif change == "name":
        wanted = {**short, "stray": FilePrefix(20, 0)}
    names = os.listdir(folder)
    if change == "no file":
        path.unlink()
    elif change == "file size":
        wanted = {"0".zfill(20): FilePrefix(100, 0)}
        names = ["0".zfill(20)]
        (folder / names[0]).write_bytes(b"")
        path.unlink()
        (folder / "200".zfill(20)).unlink()
    again = ConsumeQueue.open(folder, 200, known=wanted, names=names)
    assert again._prefixes._verified is None
    is_whole = change in ("behind", "next file", "first file")
    assert again.has_prefixes(wanted) == is_whole


@pytest.mark.parametrize(
    ("name", "said"),
    [("stray", "is not named by 20 digits"), ("600".zfill(20), "should start at 400")],
)
def test_a_file_that_does_not_belong_to_a_queue_is_refused_by_name(
    tmp_path: Path, name: str, said: str
) -> None:
    queue = ConsumeQueue(tmp_path / "0", 200)
    queue.append(0, units(15))
    queue.close()
    (tmp_path / "0" / name).write_bytes(bytes(200))
    with pytest.raises(StoreDirectoryError, match=said) as refused:
        ConsumeQueue.open(tmp_path / "0", 200)
    assert refused.value.path == tmp_path / "0" / name


def test_f08_what_a_write_has_left_over_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ConsumeQueue(tmp_path / "0", 200)
    system = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: system(file, bytes(data)[:7], at))
    queue.append(0, units(15))
    monkeypatch.undo()
    assert queue.units(0, 10).tobytes() == units(10).tobytes()
    assert queue.units(10, 15).tobytes() == units(5, 10).tobytes()


@pytest.mark.parametrize("is_closed", [False, True])
def test_f08_a_file_that_has_gone_before_its_flush_is_an_error_of_an_open_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """Covers a queue that is closed and removed meanwhile: there it is no error."""
    files = OpenFiles()
    queue = ConsumeQueue(tmp_path / "0", 200, files)
    queue.append(0, units(1))
    (path,) = (tmp_path / "0").iterdir()
    files.drop(queue._files, queue._files.bases)
    path.unlink()
    if is_closed:
        before_call(monkeypatch, "open", str(path), lambda _call: queue.close())
        queue._files.flush()
    else:
        with pytest.raises(FileNotFoundError):
            queue._files.flush()


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        (resource.RLIM_INFINITY, module.OPEN_FILES_MAX),
        (0, module.OPEN_FILES_MIN),
        (1 << 40, module.OPEN_FILES_MAX),
    ],
)
def test_f17_how_many_files_are_open_goes_by_what_the_system_grants(
    monkeypatch: pytest.MonkeyPatch, granted: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (granted, granted))
    assert module.open_files_max() == expected


def test_f17_queues_that_are_only_looked_at_share_what_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / str(number) for number in range(12)]
    for folder in folders:
        queue = ConsumeQueue(folder, 200)
        queue.append(0, units(3))
        queue.close()
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (0, 0))
    shared = OpenFiles(read_only=True)
    loaded = [ReadOnlyQueue.load(folder, 200, 0, shared) for folder in folders]
    for found in loaded:
        assert found.units(0, 3)["physical_offset"].tolist() == [0, 100, 200]
        assert len(shared) <= module.OPEN_FILES_MIN
    for found in loaded:
        found.close()
