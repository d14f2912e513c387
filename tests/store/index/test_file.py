"""One index file: byte for byte the same as with its keys entered one by one."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.index import file as index_file
from rocketpy_broker.store.index.file import REBUILD_ENTRIES, IndexFile
from rocketpy_broker.store.index.layout import HEADER, IndexFormat
from tests.store.index.model import ModelFile
from tests.support.store.disk_calls import before_call, failing

SMALL = IndexFormat(slot_count=5, entry_count_max=20)
TIMES = st.one_of(st.integers(-3_000, 9_000), st.just(1 << 45))
# Hash, physical offset, store time.
Key = tuple[int, int, int]
KEYS: st.SearchStrategy[list[Key]] = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 100), TIMES), max_size=30
)
CUTS = st.lists(st.integers(0, 30), max_size=4).map(sorted)


def put(file: IndexFile, keys: Sequence[Key]) -> int:
    columns = np.array(keys, np.int64).reshape(len(keys), 3)
    return file.put(columns[:, 0].astype(np.int32), columns[:, 1], columns[:, 2])


def put_in_calls(file: IndexFile, keys: Sequence[Key], cuts: Sequence[int]) -> None:
    """Enters all keys, in calls that end at `cuts`."""
    for begin, end in pairwise([0, *cuts, len(keys)]):
        put(file, keys[begin:end])


def model_of(keys: Sequence[Key], model: ModelFile | None = None) -> ModelFile:
    model = model or ModelFile(SMALL)
    for key in keys:
        model.put(*key)
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "20260101000000000"


@pytest.fixture
def file(path: Path) -> Iterator[IndexFile]:
    made = IndexFile.create(path, SMALL)
    yield made
    made.close()


@given(KEYS, CUTS)
@settings(max_examples=200)
@example([(1, 0, 5_000), (6, 0, 5_000), (1, 7, 8_999), (1, 7, 1 << 45)], [])
def test_s05_many_keys_at_once_make_the_bytes_of_one_by_one(
    keys: list[Key], cuts: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "20260101000000000"
        file = IndexFile.create(path, SMALL)
        put_in_calls(file, keys, cuts)
        assert path.read_bytes() == model_of(keys).to_bytes()
        assert file.is_full == (len(keys) >= SMALL.entry_count_max - 1)
        file.close()


@given(KEYS, KEYS)
def test_s05_a_file_after_a_full_one_counts_its_first_seconds_from_that_ones_end(
    first: list[Key], second: list[Key]
) -> None:
    with TemporaryDirectory() as folder:
        old = IndexFile.create(Path(folder) / "20260101000000000", SMALL)
        put(old, first)
        path = Path(folder) / "20260101000000001"
        new = IndexFile.create(path, SMALL, old)
        model = model_of(first)
        end = (model.end_timestamp, model.end_timestamp, model.end_offset, model.end_offset)
        after = ModelFile(SMALL, *end)
        assert path.read_bytes() == after.to_bytes()
        put(new, second)
        assert path.read_bytes() == model_of(second, after).to_bytes()
        old.close()
        new.close()


@given(KEYS, st.integers(0, 12), TIMES, st.integers(0, 12_000), st.integers(1, 5))
def test_s05_a_walk_finds_what_the_chain_holds(
    keys: list[Key], key_hash: int, begin_ms: int, span_ms: int, count_max: int
) -> None:
    with TemporaryDirectory() as folder:
        file = IndexFile.create(Path(folder) / "20260101000000000", SMALL)
        put(file, keys)
        expected = model_of(keys).select(key_hash, begin_ms, begin_ms + span_ms, count_max)
        walk = file.walk(key_hash, begin_ms, begin_ms + span_ms)
        assert [*islice(walk, count_max)] == expected
        file.close()


def test_s05_a_file_opened_again_goes_on(path: Path, file: IndexFile) -> None:
    keys = [(number % 7, number * 10, 1_000 + number) for number in range(15)]
    put(file, keys[:8])
    again = IndexFile.open(path, SMALL)
    assert (again.count, again.begin_offset, again.end_offset) == (9, 0, 70)
    assert (again.begin_timestamp_ms, again.end_timestamp_ms) == (1_000, 1_007)
    put(again, keys[8:])
    assert path.read_bytes() == model_of(keys).to_bytes()
    again.close()


def test_s05_a_full_file_takes_what_fits_and_then_nothing(file: IndexFile) -> None:
    keys = [(number, number, 1) for number in range(25)]
    assert put(file, keys) == 19
    assert put(file, keys) == 0


@pytest.mark.parametrize("slot", [-1, 4, 100, 1])
def test_s05_a_slot_that_points_nowhere_or_ahead_is_taken_as_described(
    path: Path, file: IndexFile, slot: int
) -> None:
    keys = [(1, 10, 1_000), (2, 20, 1_000), (1, 30, 2_000), (1, 40, 2_000)]
    put(file, keys[:2])
    model = model_of(keys[:2])
    # Slot 3 is empty so far.
    with path.open("r+b") as raw:
        raw.seek(HEADER.itemsize + 3 * 4)
        raw.write(struct.pack(">i", slot))
    model.slots[3] = slot
    more = [(8, 50, 3_000), (3, 60, 3_000)]
    put(file, more)
    assert path.read_bytes() == model_of(more, model).to_bytes()


@pytest.mark.parametrize(("seconds", "previous"), [(-1, 1), (0, 2), (0, 3), (0, -1)])
def test_s05_a_broken_chain_ends_the_search(
    path: Path, file: IndexFile, seconds: int, previous: int
) -> None:
    put(file, [(1, 10, 1_000), (1, 20, 1_000), (1, 30, 1_000)])
    with path.open("r+b") as raw:
        raw.seek(SMALL.entries_begin + 2 * 20 + 12)
        raw.write(struct.pack(">ii", seconds, previous))
    expected = [30] if seconds < 0 else [30, 20]
    assert [*file.walk(1, 0, 9_000)] == expected


def test_s05_a_short_file_is_extended_with_zeros(path: Path, file: IndexFile) -> None:
    put(file, [(1, 10, 1_000), (2, 20, 1_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: SMALL.entries_begin + 60])
    again = IndexFile.open(path, SMALL)
    assert path.read_bytes() == whole
    assert [*again.walk(2, 0, 9_000)] == [20]
    again.close()


def test_s05_a_file_of_another_format_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(bytes(SMALL.file_bytes + 1))
    with pytest.raises(StoreDirectoryError, match="slot and entry counts"):
        IndexFile.open(path, SMALL)
    assert path.stat().st_size == SMALL.file_bytes + 1


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets allocations fail for want of space."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        yield


def test_s05_on_a_full_disk_no_key_of_the_call_is_entered(
    path: Path, file: IndexFile, full_disk: None
) -> None:
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"):
        put(file, [(1, 10, 1_000)])
    assert path.read_bytes() == before
    assert file.count == 1


def test_s05_on_a_full_disk_no_file_is_made_or_opened(
    path: Path, file: IndexFile, full_disk: None
) -> None:
    with pytest.raises(OSError, match="No space"):
        IndexFile.create(path.with_name("20260101000000001"), SMALL)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(OSError, match="No space"):
        IndexFile.open(path, SMALL)


def test_s05_blocks_are_taken_in_steps(tmp_path: Path) -> None:
    step = index_file.ALLOCATION_STEP_BYTES
    path = tmp_path / "20260101000000000"
    file = IndexFile.create(path, IndexFormat())
    empty = path.stat().st_blocks * 512
    assert path.stat().st_size == 420_000_040
    assert 20_000_040 <= empty < 21_000_000
    put(file, [(1, 10, 1_000)])
    assert step <= path.stat().st_blocks * 512 - empty < 2 * step
    file.remove()
    assert not path.exists()


def sorted_keys(count: int) -> list[Key]:
    """Returns keys in the log's order: two per record, with hashes that share slots."""
    return [
        (number * 7 % 12, number // 2 * 10, 1_000 + number // 2 * 700) for number in range(count)
    ]


@pytest.mark.parametrize("physical_end", [1, 10, 11, 45, 80, 1_000])
def test_s05_a_cut_file_is_as_if_no_later_key_had_been_entered(
    path: Path, file: IndexFile, physical_end: int
) -> None:
    keys = sorted_keys(17)
    times = {offset: time for _, offset, time in keys}
    put(file, keys)
    file.truncate(physical_end, times.__getitem__)
    kept = [key for key in keys if key[1] < physical_end]
    assert path.read_bytes() == model_of(kept).to_bytes()
    assert file.fault() is None
    put(file, keys[len(kept) :])
    assert path.read_bytes() == model_of(keys).to_bytes()


def test_s05_a_cut_of_more_entries_than_one_step_takes_is_as_exact(tmp_path: Path) -> None:
    """Asserts the same for slots with entries of the first step, of the second, and of both."""
    kept = REBUILD_ENTRIES + 400
    large = IndexFormat(slot_count=10_107, entry_count_max=kept + 100)
    numbers = np.arange(kept + 50)
    hashes = np.where(numbers < REBUILD_ENTRIES, numbers % 10_000, 9_600 + numbers % 507)
    offsets, times = numbers.astype(np.int64) * 10, np.full(len(numbers), 1_000)
    contents = []
    for name, count in (("cut", len(numbers)), ("uncut", kept)):
        file = IndexFile.create(tmp_path / name, large)
        file.put(hashes[:count].astype(np.int32), offsets[:count], times[:count])
        file.truncate(kept * 10, lambda _offset: 1_000)
        assert file.count == 1 + kept
        file.close()
        contents.append((tmp_path / name).read_bytes())
    is_same = contents[0] == contents[1]
    assert is_same, "the contents would be a long message"


@pytest.mark.parametrize(
    ("physical_end", "end_ms"), [(30, 2_000), (20, 1_000), (10, 1_000), (99, 6_600)]
)
def test_s05_without_the_log_the_end_time_of_a_cut_file_is_exact_to_a_second(
    file: IndexFile, physical_end: int, end_ms: int
) -> None:
    put(file, sorted_keys(17))
    file.truncate(physical_end, None)
    assert file.end_timestamp_ms == end_ms


def torn_states(before: bytes, after: bytes) -> Iterator[bytes]:
    """Yields the states after a kill within `put`: entries, then slots, then header fields."""
    state = bytearray(before)
    entries, header = SMALL.entries_begin, HEADER.itemsize
    places = [*range(entries, len(after)), *range(header, entries, 4)]
    fields = ["begin_timestamp", "begin_offset", "slots_used", "end_offset", "end_timestamp"]
    for place in places:
        size = 1 if place >= entries else 4
        if state[place : place + size] != after[place : place + size]:
            state[place : place + size] = after[place : place + size]
            yield bytes(state)
    for name in fields:
        dtype, place = HEADER.fields[name][:2]  # type: ignore[index]
        state[place : place + dtype.itemsize] = after[place : place + dtype.itemsize]
        yield bytes(state)


def test_s05_a_put_that_a_kill_interrupted_is_undone_wherever_it_was(tmp_path: Path) -> None:
    keys = sorted_keys(14)
    times = {offset: time for _, offset, time in keys}
    before, after = model_of(keys[:8]).to_bytes(), model_of(keys).to_bytes()
    states = list(torn_states(before, after))
    assert len(states) == 30
    for number, state in enumerate(states):
        path = tmp_path / f"{number:017d}"
        path.write_bytes(state)
        file = IndexFile.open(path, SMALL)
        assert file.fault() is None
        file.truncate(1 << 40, times.__getitem__)
        assert path.read_bytes() == before
        file.remove()


def test_s05_a_cut_that_was_interrupted_is_done_by_the_next(
    path: Path, file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = sorted_keys(17)
    times = {offset: time for _, offset, time in keys}

    def unreadable(_offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for is_cut in (False, True):
        put(file, keys[file.count - 1 :])
        with monkeypatch.context() as patch:
            before_call(patch, "ftruncate", f"{path}", failing(errno.EIO))
            with pytest.raises(OSError, match="Input/output error"):
                file.truncate(45, times.__getitem__ if is_cut else unreadable)
        file.truncate(45, times.__getitem__)
        assert path.read_bytes() == model_of(keys[:10]).to_bytes()


def test_s05_a_header_that_no_crash_explains_is_a_fault(path: Path, file: IndexFile) -> None:
    assert file.fault() is None
    put(file, sorted_keys(8)[2:])
    assert file.fault() is None
    whole = path.read_bytes()
    cases = {
        36: (struct.pack(">i", 21), "at most 20"),
        16: (struct.pack(">q", 5), "header says 5 to 30"),
        24: (struct.pack(">q", 29), "header says 10 to 29"),
        SMALL.entries_begin + 6 * 20: (bytes(20), "from 10 to 0"),
    }
    for place, (wrong, text) in cases.items():
        path.write_bytes(whole[:place] + wrong + whole[place + len(wrong) :])
        again = IndexFile.open(path, SMALL)
        assert text in (again.fault() or "")
        again.close()


def test_s05_flush_tells_what_the_disk_says(
    file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(file, sorted_keys(2))
    assert file.dirty

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            file.flush()
    assert file.dirty
    file.flush()
    assert not file.dirty


def test_s05_a_file_that_was_removed_needs_no_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = IndexFile.create(tmp_path / "removed", SMALL)
    put(file, sorted_keys(2))
    file.remove()
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    file.flush()
    assert flushed == []
