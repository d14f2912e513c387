"""The index over all its files: replay, rolling, queries, cutting."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.index.file import STEP_ENTRIES
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.index.service import IndexService
from rocketpy_proto.record import IndexKeys
from tests.store.index.model import ModelService, key_hash
from tests.support.store.disk_calls import before_call

SMALL = IndexFormat(slot_count=7, entry_count_max=6)
NAMES = [f"k{number}" for number in range(12)]
# The keys of each record, and the time that passes before it.
Messages = list[tuple[list[str], int]]
MESSAGES: st.SearchStrategy[Messages] = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=4), st.sampled_from([0, 400, 1_000, 60_000])
    ),
    max_size=20,
)
BEGIN_MS = 1_700_000_000_000
RECORD_BYTES = 100
FOREVER = 1 << 50


class Log:
    """Records of one topic, given by their keys; each takes 100 bytes."""

    def __init__(self, messages: Messages) -> None:
        self.offsets = np.arange(len(messages), dtype=np.int64) * RECORD_BYTES
        passed = np.array([delay for _, delay in messages], np.int64)
        self.times = BEGIN_MS + np.cumsum(passed)
        self.hashes = [[key_hash("T", name) for name in names] for names, _ in messages]

    def time_of(self, offset: int) -> int:
        return int(self.times[offset // RECORD_BYTES])

    def keys(self, begin: int, end: int) -> IndexKeys:
        rows = [row for row, some in enumerate(self.hashes[begin:end]) for _ in some]
        hashes = [value for some in self.hashes[begin:end] for value in some]
        return IndexKeys(np.array(hashes, np.int32), np.array(rows, np.int64))

    def put(self, service: IndexService, begin: int = 0, end: int | None = None) -> None:
        """Dispatches the records from `begin` to `end`."""
        keys = self.keys(begin, len(self.hashes) if end is None else end)
        service.put(keys, self.offsets[begin:end], self.times[begin:end])

    def model(self, end: int | None = None) -> ModelService:
        model = ModelService(SMALL)
        for hashes, offset, stamp in zip(self.hashes[:end], self.offsets, self.times, strict=False):
            model.put(hashes, int(offset), int(stamp))
        return model


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*"))]


def model_contents(model: ModelService) -> list[bytes]:
    return [file.to_bytes() for file in model.files]


NewService = Callable[[], IndexService]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def new_service(folder: Path, clock: ManualClock) -> Iterator[NewService]:
    """Returns a loader of the folder; all services are closed at the end."""
    made: list[IndexService] = []

    def build() -> IndexService:
        made.append(IndexService(folder, clock, SMALL))
        made[-1].load()
        return made[-1]

    yield build
    for service in made:
        service.close()


def test_s05_an_index_without_files_finds_nothing(new_service: NewService, folder: Path) -> None:
    service = new_service()
    assert service.physical_end == -1
    assert service.end_timestamp_of_full_ms == 0
    assert service.in_doubt is None
    assert service.query("T", "k1", 0, FOREVER, 64).tolist() == []
    service.truncate(0)
    service.flush()
    Log([([], 0)]).put(service)
    assert not folder.exists()


@given(MESSAGES, st.lists(st.integers(0, 20), max_size=4).map(sorted))
@settings(max_examples=150)
def test_s05_files_are_those_of_one_key_after_the_other(
    messages: Messages, cuts: list[int]
) -> None:
    log = Log(messages)
    with TemporaryDirectory() as name:
        service = IndexService(Path(name), ManualClock(), SMALL)
        for begin, end in zip([0, *cuts], [*cuts, None], strict=True):
            log.put(service, begin, end)
        model = log.model()
        assert contents(Path(name)) == model_contents(model)
        full = [file for file in model.files if len(file.entries) == SMALL.entry_count_max]
        assert service.end_timestamp_of_full_ms == (full[-1].end_timestamp if full else 0)
        service.close()


@given(
    MESSAGES,
    st.sampled_from(NAMES),
    st.integers(-5_000, 300_000),
    st.integers(0, 300_000),
    st.sampled_from([1, 2, 100]),
)
def test_s05_a_query_finds_what_a_walk_over_the_files_finds(
    messages: Messages, name: str, begin: int, span: int, count_max: int
) -> None:
    log = Log(messages)
    begin_ms, end_ms = BEGIN_MS + begin, BEGIN_MS + begin + span
    with TemporaryDirectory() as folder:
        service = IndexService(Path(folder), ManualClock(), SMALL)
        log.put(service)
        found = service.query("T", name, begin_ms, end_ms, count_max)
        expected = log.model().query(key_hash("T", name), begin_ms, end_ms, count_max)
        assert found.tolist() == expected
        service.close()


def test_s05_a_query_gives_the_newest_in_order(tmp_path: Path) -> None:
    log = Log([(["k1"], 0)] * 100)
    service = IndexService(tmp_path, ManualClock(), IndexFormat(7, 1_000))
    log.put(service)
    found = service.query("T", "k1", 0, FOREVER, 64)
    assert found.tolist() == log.offsets[36:].tolist()
    assert service.query("T", "k1", 0, FOREVER, 2).tolist() == log.offsets[98:].tolist()
    service.close()


@given(MESSAGES, st.sampled_from(NAMES), st.integers(-50, 25 * RECORD_BYTES))
def test_s05_a_walk_goes_on_before_any_offset(messages: Messages, name: str, before: int) -> None:
    log = Log(messages)
    with TemporaryDirectory() as folder:
        service = IndexService(Path(folder), ManualClock(), SMALL)
        log.put(service)
        whole = [each for each in service.walk("T", name, 0, FOREVER) if each is not None]
        for start in (before, *whole):
            rest = service.walk("T", name, 0, FOREVER, start)
            expected = [each for each in whole if each < start]
            assert [each for each in rest if each is not None] == expected
        service.close()


def test_s05_a_walk_that_goes_on_passes_no_entry_again(tmp_path: Path) -> None:
    log = Log([(["k1"], 0)] * (2 * STEP_ENTRIES + 2))
    service = IndexService(tmp_path, ManualClock(), IndexFormat(7, 10_000))
    log.put(service)
    first, second = log.offsets[:2].tolist()
    assert [*service.walk("T", "k1", 0, FOREVER, second)] == [first]
    assert [*service.walk("T", "k1", 0, FOREVER, second - 1)] == [None, None, first]
    service.close()


def test_s05_a_walk_pauses_among_entries_of_other_times(tmp_path: Path) -> None:
    log = Log([(["k1"], 0), (["k1"], 5_000), *[(["k1"], 0)] * (2 * STEP_ENTRIES)])
    service = IndexService(tmp_path, ManualClock(), IndexFormat(7, 10_000))
    log.put(service)
    assert [*service.walk("T", "k1", 0, BEGIN_MS)] == [None, None, log.offsets[0]]
    service.close()


@given(MESSAGES, st.integers(0, 20), st.integers(0, 20), st.integers(0, 4))
def test_s05_dispatching_again_from_anywhere_enters_no_key_twice(
    messages: Messages, known: int, again: int, keys_kept: int
) -> None:
    log = Log(messages)
    known = min(known, len(messages))
    again = min(again, known)
    with TemporaryDirectory() as name:
        service = IndexService(Path(name), ManualClock(), SMALL)
        log.put(service, 0, known)
        # A crash also came between the keys of a record.
        partly = log.keys(known, known + 1)
        partly = IndexKeys(partly.hash[:keys_kept], partly.row[:keys_kept])
        service.put(partly, log.offsets[known:], log.times[known:])
        log.put(service, again)
        assert contents(Path(name)) == model_contents(log.model())
        service.close()


@given(MESSAGES, st.integers(0, 20))
@settings(max_examples=150)
def test_s05_a_cut_index_is_as_if_no_later_record_had_been_dispatched(
    messages: Messages, kept: int
) -> None:
    log = Log(messages)
    kept = min(kept, len(messages))
    with TemporaryDirectory() as name:
        service = IndexService(Path(name), ManualClock(), SMALL)
        log.put(service)
        service.truncate(kept * RECORD_BYTES, log.time_of)
        assert contents(Path(name)) == model_contents(log.model(kept))
        assert service.in_doubt is None
        log.put(service)
        assert contents(Path(name)) == model_contents(log.model())
        service.close()


def numbered(count: int) -> Messages:
    """Returns messages with two keys each; five entries fill a file."""
    return [([f"k{number % 5}", f"u{number}"], 700) for number in range(count)]


def test_s05_a_loaded_index_answers_and_goes_on(new_service: NewService, folder: Path) -> None:
    log = Log(numbered(12))
    first = new_service()
    log.put(first, 0, 8)
    second = new_service()
    assert second.physical_end == first.physical_end == 7 * RECORD_BYTES
    assert second.query("T", "k2", 0, FOREVER, 64).tolist() == [200, 700]
    log.put(second)
    assert contents(folder) == model_contents(log.model())


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sets the local time nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


def test_s05_names_are_the_local_time_and_always_grow(
    new_service: NewService, folder: Path, clock: ManualClock, tokyo: None
) -> None:
    log = Log(numbered(12))
    service = new_service()
    log.put(service, 0, 5)
    clock.advance(-5_000)
    log.put(service, 5, 8)
    clock.advance(60_005)
    log.put(service, 8)
    assert sorted(path.name for path in folder.iterdir()) == [
        "20231115071320000",
        "20231115071320001",
        "20231115071320002",
        "20231115071320003",
        "20231115071415005",
    ]


def test_s05_what_is_no_index_file_is_reported_and_left_alone(
    new_service: NewService, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "20260101000000001").mkdir(parents=True)
    for name in ("notes.txt", "123"):
        (folder / name).write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        service = new_service()
    assert service.physical_end == -1
    assert len(caplog.records) == 3
    assert all("is no index file" in record.getMessage() for record in caplog.records)
    service.reset()
    assert len(list(folder.iterdir())) == 3


def test_s05_a_file_of_another_format_is_named(new_service: NewService, folder: Path) -> None:
    folder.mkdir()
    (folder / "20260101000000001").write_bytes(bytes(SMALL.file_bytes + 20))
    with pytest.raises(StoreDirectoryError, match="20260101000000001"):
        new_service()


def patch_file(path: Path, place: int, content: bytes) -> None:
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(content)


def test_s05_an_index_that_cannot_be_right_says_so(new_service: NewService, folder: Path) -> None:
    service = new_service()
    Log(numbered(6)).put(service)
    assert service.in_doubt is None
    first, second, _ = sorted(folder.iterdir())
    # The count of the first file.
    patch_file(first, 36, struct.pack(">i", 5))
    assert "is not full" in (new_service().in_doubt or "")
    patch_file(first, 36, struct.pack(">i", 6))
    # The start of the second file, in its header and its first entry.
    for place in (16, SMALL.entries_begin + 20 + 4):
        patch_file(second, place, struct.pack(">q", 50))
    assert "the file before it ends at 200" in (new_service().in_doubt or "")
    patch_file(second, 16, struct.pack(">q", 51))
    assert str(second) in (new_service().in_doubt or "")


def test_s05_reset_removes_all_files(new_service: NewService, folder: Path) -> None:
    service = new_service()
    log = Log(numbered(12))
    log.put(service)
    service.reset()
    assert contents(folder) == []
    log.put(service)
    assert contents(folder) == model_contents(log.model())


def delete_expired(service: IndexService, min_physical_offset: int) -> int:
    """Removes expired files; returns their number."""
    paths = service.expired(min_physical_offset)
    for path in paths:
        path.unlink()
    service.drop_first(len(paths))
    return len(paths)


def test_s05_files_of_records_that_are_gone_are_deleted_but_the_last(
    new_service: NewService, folder: Path
) -> None:
    log = Log(numbered(6))
    service = new_service()
    log.put(service)
    whole = contents(folder)
    assert delete_expired(service, 200) == 0
    assert delete_expired(service, 201) == 1
    assert contents(folder) == whole[1:]
    assert delete_expired(service, FOREVER) == 1
    assert contents(folder) == whole[2:]


def test_s05_flush_makes_each_changed_file_durable_once(
    new_service: NewService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = new_service()
    log = Log(numbered(12))
    flushed: list[str] = []
    before_call(monkeypatch, "fdatasync", "*", lambda call: flushed.append(call.path))
    log.put(service, 0, 6)
    service.flush()
    assert len(flushed) == len(set(flushed)) == 3
    service.flush()
    assert len(flushed) == 3
    log.put(service)
    service.flush()
    assert len(flushed) == 6
