"""Appends with writes on another thread: one writer at a time, in one order."""

from __future__ import annotations

import errno
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.append.appender import AppendUnderWay
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.faults.images import block_of
from tests.support.store.disk_calls import CHECKSUMS, LOG, DiskCall, before_call
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    put,
    read_all,
    remove_oldest_segment,
)
from tests.support.store.stores import OpenStore, crash
from tests.support.time_limits import WAIT_SECONDS_MAX


def test_b09_an_append_is_part_of_the_log_once_it_is_finished(store: MessageStore) -> None:
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"a", b"b"]))
    thread = threading.Thread(target=under_way.write)
    thread.start()
    thread.join()
    assert (read_all(store), store.positions().log_end, store.next_offset(QUEUE)) == ([], 0, 0)
    result = under_way.finish()
    assert (result.queue_offset, result.physical_offset, result.record_count) == (0, 0, 2)
    assert store.positions().log_end == result.end_offset
    assert read_all(store) == [b"a", b"b"]
    assert under_way.finish() is result
    assert store.statistics.puts[QUEUE.topic].count == 2


def test_b09_what_is_appended_meanwhile_comes_behind(store: MessageStore) -> None:
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"first"]))
    put(store, [b"second"])
    put(store, [b"other"], OTHER)
    under_way.write()
    assert under_way.finish().queue_offset == 0
    assert read_all(store) == [b"first", b"second"]
    assert read_all(store, OTHER) == [b"other"]


def test_b09_whoever_appends_waits_for_the_thread_that_writes(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, released = threading.Event(), threading.Event()
    writers: list[str] = []

    def slow(_call: DiskCall) -> None:
        if threading.current_thread() is thread:
            entered.set()
            released.wait(WAIT_SECONDS_MAX)
        writers.append(threading.current_thread().name)

    before_call(monkeypatch, "pwrite", "*", slow)
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"first"]))
    thread = threading.Thread(target=under_way.write, name="writer")
    thread.start()
    entered.wait(WAIT_SECONDS_MAX)
    released.set()
    put(store, [b"second"])
    thread.join()
    assert writers[:2] == ["writer"] * 2
    assert set(writers[2:]) == {"MainThread"}
    assert read_all(store) == [b"first", b"second"]


@pytest.mark.parametrize("is_finished_by_its_caller", [True, False])
def test_b09_s13_a_write_that_fails_stores_nothing_counts_once_and_tells_its_own_caller(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, *, is_finished_by_its_caller: bool
) -> None:
    failures = [OSError(errno.EIO, "Input/output error")]

    def fail_once(_call: DiskCall) -> None:
        if failures:
            raise failures.pop()

    before_call(monkeypatch, "pwrite", LOG, fail_once)
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"lost"]))
    under_way.write()
    if not is_finished_by_its_caller:
        put(store, [b"second"])
    for _ in range(2):
        with pytest.raises(StoreClosedError, match="nothing was stored"):
            under_way.finish()
    assert store.statistics.put_failed_count == 1
    put(store, [b"third"])
    assert read_all(store) == ([] if is_finished_by_its_caller else [b"second"]) + [b"third"]


def test_b09_a_topic_that_is_deleted_takes_along_what_was_under_way(store: MessageStore) -> None:
    put(store, [b"old"])
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"under way"]))
    delete_topic(store, QUEUE.topic)
    under_way.finish()
    put(store, [b"new"])
    assert read_all(store) == [b"new"]


def test_b09_a_stop_takes_along_what_is_under_way(new_store: OpenStore) -> None:
    store = new_store(FlushDiskType.SYNC_FLUSH)
    store.open()
    store.begin_append(QUEUE, block_of(QUEUE.topic, [b"a"]))
    store.close()
    again = new_store(FlushDiskType.SYNC_FLUSH)
    assert not again.open().abnormal
    assert read_all(again) == [b"a"]


def test_b09_a_flush_meanwhile_vouches_for_nothing_that_is_under_way(open_store: OpenStore) -> None:
    store = open_store(FlushDiskType.SYNC_FLUSH)
    put(store, [b"a"])
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"b"]))
    flush_log(store)
    assert read_all(store) == [b"a"]
    end = store.positions().flushed_end
    assert under_way.finish().physical_offset == end
    flush_log(store)
    assert read_all(store) == [b"a", b"b"]


def test_b09_a_crash_meanwhile_leaves_nothing_or_all_of_it(open_store: OpenStore) -> None:
    store = open_store()
    put(store, [b"a"])
    under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"b", b"c"]))
    under_way.write()
    crash(store)
    again = open_store()
    put(again, [b"d"])
    assert read_all(again) in ([b"a", b"d"], [b"a", b"b", b"c", b"d"])


def test_b09_bytes_that_were_not_written_never_become_part_of_the_log(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call: DiskCall) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        before_call(patched, "pwrite", CHECKSUMS, fail)
        under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"lost"]))
        with pytest.raises(MemoryError):
            under_way.write()
        with pytest.raises(MemoryError):
            store.append(QUEUE, block_of(QUEUE.topic, [b"lost, too"]))
        with pytest.raises(StoreClosedError, match="nothing was stored"):
            under_way.finish()
    put(store, [b"stored"])
    assert read_all(store) == [b"stored"]
    assert store.next_offset(QUEUE) == 1


def test_b09_a_block_becomes_part_of_the_log_once_whatever_its_listeners_do(
    store: MessageStore,
) -> None:
    failures: list[Exception] = [RuntimeError("a listener")]

    def listener(_queue: QueueKey) -> None:
        if failures:
            raise failures.pop()

    store.on_dispatch(listener)
    with pytest.raises(RuntimeError, match="a listener"):
        put(store, [b"a"])
    end = store.positions().log_end
    assert put(store, [b"b"]) == end
    assert read_all(store) == [b"a", b"b"]


def test_b09_the_oldest_segment_may_go_at_each_step_of_the_thread_that_writes(
    store: MessageStore,
) -> None:
    under_way: AppendUnderWay
    steps_left = 0

    def step(_frame: FrameType, _event: str, _value: object) -> Callable[..., Any]:
        nonlocal steps_left
        steps_left -= 1
        if steps_left == 0:
            remove_oldest_segment(store)
        return step

    def write() -> None:
        sys.settrace(step)
        under_way.write()

    for steps in itertools.count(1):
        steps_left = steps
        for _ in range(4):
            put(store, [bytes(1_500)])
        under_way = store.begin_append(QUEUE, block_of(QUEUE.topic, [b"%d" % steps]))
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        under_way.finish()
        assert read_all(store)[-1] == b"%d" % steps
        if steps_left > 0:
            break
    assert steps > 50
