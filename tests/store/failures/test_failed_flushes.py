"""Failed flushes of index or mark; the system takes their pages for written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.errors import StoreReadError
from tests.store.failures.test_failing_calls import broken, found_by, put_keyed
from tests.support.store.messages import QUEUE, flush_log, numbered, put
from tests.support.store.stores import OpenStore, crash


def test_f08_behind_a_failed_flush_of_the_index_nobody_asks_it(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Covers lost index pages: lookups would miss the messages in them."""
    put_keyed(store, "order")
    store.index.drain()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            store.index.flush()
    # As if the system had dropped the pages, which it takes for written.
    (path,) = (tmp_path / "index").iterdir()
    with path.open("rb+") as file:
        file.write(bytes(path.stat().st_size))
    with pytest.raises(StoreReadError, match="index cannot be read"):
        found_by(store, "order")
    assert store.messages.offsets_by_key(QUEUE.topic, "order", 64) is None
    crash(store)
    again = open_store()
    assert found_by(again, "order") == 1


def test_f08_an_index_file_whose_flush_failed_is_not_flushed_again(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a full file before the next one is created."""
    store = open_store(index_entry_count_max=4)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        for number in range(5):
            put_keyed(store, f"k{number}")
        store.index.drain()
    put_keyed(store, "k5")
    store.index.drain()
    assert len(list((tmp_path / "index").iterdir())) == 1
    with pytest.raises(OSError, match="Input/output"):
        store.flush_derived()
    # No lookup reads them any more, so they need not stay in memory until the next start.
    waiting = store.index._waiting_count
    put_keyed(store, "k6")
    assert store.index._waiting_count == waiting
    store.close()
    assert (tmp_path / "abort").exists()
    again = open_store(index_entry_count_max=4)
    assert [found_by(again, f"k{number}") for number in range(7)] == [1] * 7


def test_f08_a_mark_whose_flush_failed_is_written_again_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    """Covers an older mark on the disk: a damaged record after it would count as a torn tail."""
    put(store, numbered(5))
    flush_log(store)
    mark = str(tmp_path / "rocketpy" / "flushed")
    calls: list[str] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def noted(descriptor: int, data: bytes, position: int) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}") == mark:
            calls.append("write")
        return pwrite(descriptor, data, position)

    def failing_once(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == mark:
            calls.append("flush")
            if calls.count("flush") == 1:
                broken()
        fdatasync(descriptor)

    monkeypatch.setattr(os, "pwrite", noted)
    monkeypatch.setattr(os, "fdatasync", failing_once)
    with pytest.raises(OSError, match="Input/output"):
        store.flush_derived()
    store.flush_derived()
    store.flush_derived()
    assert calls == ["flush", "write", "flush", "flush"]
