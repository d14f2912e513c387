"""Slices of waiting keys: the index is the same as if all keys were entered at once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.index.dispatch import SLICE_KEYS, IndexDispatch
from rocketpy_proto.record import IndexKeys

RECORD_BYTES = 100
BEGIN_MS = 1_700_000_000_000
# The number of keys per record of each block.
BLOCKS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), max_size=6)


def index_of(
    folder: Path, clock: ManualClock | None = None, slice_keys: int = SLICE_KEYS
) -> IndexDispatch:
    config = StoreConfig(
        folder,
        1 << 20,
        6_000,
        FlushDiskType.ASYNC_FLUSH,
        index_slot_count=1_009,
        index_entry_count_max=200_000,
    )
    clock = clock or ManualClock()
    return IndexDispatch(folder, clock, config, lambda _offset: BEGIN_MS, slice_keys)


def put(index: IndexDispatch, blocks: list[list[int]]) -> int:
    """Enters the blocks in order; returns the number of their keys."""
    record = key = 0
    for counts in blocks:
        rows = np.repeat(np.arange(len(counts)), counts)
        hashes = np.arange(key, key + len(rows), dtype=np.int32)
        offsets = (record + np.arange(len(counts))) * RECORD_BYTES
        index.put_later(IndexKeys(hashes, rows), offsets, BEGIN_MS + record)
        record, key = record + len(counts), key + len(rows)
    return key


def entries(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.glob("*"))]


@settings(max_examples=40, deadline=None)
@given(BLOCKS, st.integers(1, 12))
def test_n12_slices_make_the_same_index(blocks: list[list[int]], slice_keys: int) -> None:
    with TemporaryDirectory() as name:
        whole = index_of(Path(name) / "whole")
        sliced = index_of(Path(name) / "sliced", slice_keys=slice_keys)
        put(whole, blocks)
        whole.drain()
        count = put(sliced, blocks)
        steps = 0
        while sliced.drain_some():
            steps += 1
            assert sliced.entered_end(1 << 40) % RECORD_BYTES == 0
        assert not sliced.is_behind
        # A record's keys stay together.
        assert steps <= count // slice_keys + len(blocks)
        whole.close()
        sliced.close()
        assert entries(Path(name) / "whole") == entries(Path(name) / "sliced")


def test_n12_a_large_block_enters_the_index_a_slice_at_a_time(tmp_path: Path) -> None:
    index = index_of(tmp_path / "index")
    put(index, [[1] * 3 * SLICE_KEYS])
    assert index.has_many
    assert index.entered_end(1 << 40) == SLICE_KEYS * RECORD_BYTES
    assert [index.drain_some(), index.drain_some(), index.is_behind] == [True, False, False]
    index.close()


def test_n12_all_that_waits_enters_the_index_before_a_question(tmp_path: Path) -> None:
    index = index_of(tmp_path / "index")
    put(index, [[1] * 3 * SLICE_KEYS])
    index.drain()
    assert not index.is_behind
    assert index.entered_end(1 << 40) == 1 << 40
    index.close()


def test_f07_an_index_that_cannot_grow_is_a_line_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    (tmp_path / "index").touch()  # A file instead of a folder.
    index = index_of(tmp_path / "index", clock)
    put(index, [[1, 2]])
    for _ in range(62):
        index.drain()
        clock.advance(1_000)
    assert sum("the index cannot grow, 3 keys wait" in line for line in caplog.messages) == 2
    (tmp_path / "index").unlink()
    index.drain()
    assert not index.is_behind
