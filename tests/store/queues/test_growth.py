"""Queues without space: such a queue refuses its own messages and delays no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.log_throttle import INTERVAL_MS
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.allocator import QUEUES_MAX, RETRIES_MAX, QueueAllocator
from rocketpy_broker.store.queues.errors import QueueGrowthError
from rocketpy_broker.store.values import GetMessageStatus, QueueBounds, QueueKey, ReadLimits
from rocketpy_proto.model.codes import ResponseCode
from tests.support.store.disk_calls import DiskCall, before_call, failing
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    read_all,
)
from tests.support.store.planted_faults import FIRST, write_at
from tests.support.store.stores import OpenStore, crash

UNITS_PER_FILE = 10


class FullDisk:
    """A disk on which queues of one topic get no space while it is full."""

    def __init__(self, topic: str = QUEUE.topic) -> None:
        self._files = f"*/consumequeue/{topic}/*"
        self.is_full = True

    def _check(self, _call: DiskCall) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def fill(self, patch: pytest.MonkeyPatch, *, reserve: bool = True) -> None:
        """Refuses space to queues, or lets their writes fail after a granted reservation."""
        before_call(patch, "posix_fallocate" if reserve else "pwrite", self._files, self._check)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f17_a_queue_without_room_refuses_its_own_messages_and_no_others(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType
) -> None:
    store, disk = new_store(flush), FullDisk()
    store.open()
    put(store, numbered(8))
    disk.fill(monkeypatch)
    put(store, numbered(2, 8))
    end = store.positions().log_end
    with pytest.raises(QueueGrowthError, match="queue TopicA-2 cannot grow") as refused:
        put(store, numbered(1, 10))
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "No space left" in str(refused.value)
    assert "other queues work" in str(refused.value)
    assert store.positions().log_end == end
    put(store, [b"of another queue"], OTHER)
    flush_log(store)
    assert read_all(store, OTHER) == [b"of another queue"]
    assert store.positions().dispatched_end == store.positions().log_end
    disk.is_full = False
    put(store, numbered(2, 10))
    flush_log(store)
    assert read_all(store) == numbered(12)


def test_f17_a_block_of_several_queues_is_stored_as_a_whole_or_not_at_all(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = new_store(), FullDisk()
    store.open()
    disk.fill(monkeypatch)
    with pytest.raises(QueueGrowthError):
        put(store, numbered(3))
    assert store.queues() == []
    assert store.range_of(QUEUE) == QueueBounds(0, 0)
    assert store.statistics.put_failed_count == 1
    disk.is_full = False
    put(store, numbered(3))
    assert read_all(store) == numbered(3)


def test_f17_a_queue_without_room_is_told_of_until_it_has_some(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = new_store(), FullDisk()
    store.open()
    disk.fill(monkeypatch)
    for number in range(RETRIES_MAX + 6):
        with pytest.raises(QueueGrowthError):
            put(store, [b"x"], QueueKey(QUEUE.topic, number))
    store.dispatch()
    said = str(store.queue_allocator.refusal)
    assert f"and {RETRIES_MAX + 5} others cannot grow (No space left on device)" in said
    # The broker itself takes messages.
    assert store.refusal is None
    disk.is_full = False
    store.dispatch()
    assert "and 5 others" in str(store.queue_allocator.refusal)
    store.dispatch()
    assert store.queue_allocator.refusal is None
    # A reservation alone makes no visible queue.
    assert store.queues() == []


def test_f17_the_log_hears_of_it_once_a_minute(
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    store: MessageStore,
) -> None:
    FullDisk().fill(monkeypatch)
    for step_ms, warnings in ((0, 1), (INTERVAL_MS - 1, 1), (1, 2), (0, 2)):
        clock.advance(step_ms)
        for _ in range(5):
            with pytest.raises(QueueGrowthError):
                put(store, [b"x"])
        assert caplog.text.count("cannot grow") == warnings


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f17_messages_that_were_stored_wait_for_their_queue_alone(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType
) -> None:
    """Covers a disk that fails between the reservation and the write."""
    store, disk = new_store(flush), FullDisk()
    store.open()
    put(store, numbered(4))
    flush_log(store)
    held_from = store.positions().log_end
    disk.fill(monkeypatch, reserve=False)
    put(store, numbered(2, 4))
    held_to = store.positions().log_end
    put(store, [b"of another queue"], OTHER)
    flush_log(store)
    assert (read_all(store), read_all(store, OTHER)) == (numbered(4), [b"of another queue"])
    end = store.positions().log_end
    assert store.positions().dispatched_end == held_from
    assert not store.is_dispatched(held_to)
    assert store.is_dispatched(end, begin=held_to)
    put(store, numbered(2, 6))
    flush_log(store)
    store.dispatch()
    assert read_all(store) == numbered(4)
    disk.is_full = False
    store.dispatch()
    assert read_all(store) == numbered(8)
    assert store.positions().dispatched_end == store.positions().log_end
    assert store.queue_allocator.refusal is None


def test_f17_what_waits_for_its_queue_outlives_a_manifest_and_a_crash(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = new_store(), FullDisk()
    store.open()
    put(store, numbered(4))
    with monkeypatch.context() as patch:
        disk.fill(patch, reserve=False)
        put(store, numbered(2, 4))
        put(store, [b"of another queue"], OTHER)
        flush_log(store)
        store.save_manifest(store.plan_manifest())
        crash(store)
    again = new_store()
    assert again.open().units_dispatched == 3
    assert (read_all(again), read_all(again, OTHER)) == (numbered(6), [b"of another queue"])


def test_f17_a_deleted_topic_waits_for_no_room(
    new_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, disk = new_store(), FullDisk()
    store.open()
    put(store, numbered(4))
    disk.fill(monkeypatch, reserve=False)
    put(store, numbered(2, 4))
    delete_topic(store, QUEUE.topic)
    assert store.queue_allocator.refusal is None
    assert store.positions().dispatched_end == store.positions().log_end
    disk.is_full = False
    store.dispatch()
    assert store.queues() == []
    put(store, [b"new"])
    assert read_all(store) == [b"new"]


def test_f17_room_that_was_never_used_is_given_back_by_the_next_start(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: MessageStore
) -> None:
    _refused_by_the_log(store, monkeypatch)
    folder = tmp_path / "consumequeue" / QUEUE.topic / str(QUEUE.queue_id)
    assert folder.exists()
    store.close()
    again = new_store()
    assert again.open().in_doubt == []
    assert not folder.exists()
    assert read_all(again) == []


def _refused_by_the_log(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        before_call(patch, "posix_fallocate", "*/commitlog.new", failing(errno.ENOSPC))
        with pytest.raises(Exception, match="the commit log cannot be written"):
            put(store, [b"x"])


def test_f17_a_queue_is_made_with_its_first_room_not_with_its_whole_length(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(queue_file_bytes=6_000_000)
    put(store, [b"x"])
    [path] = (tmp_path / "consumequeue" / QUEUE.topic / str(QUEUE.queue_id)).iterdir()
    status = os.stat(path)
    assert status.st_size == 6_000_000
    assert status.st_blocks * 512 <= 8192


def test_f17_of_very_many_queues_without_room_some_are_remembered(
    clock: ManualClock, open_store: OpenStore
) -> None:
    store = open_store()
    queue_allocator = QueueAllocator(store._queues, clock)
    for queue_id in range(QUEUES_MAX + 2):
        queue_allocator.failed(
            QueueKey("T", queue_id), 1, OSError(errno.ENOSPC, "No space left on device")
        )
    assert queue_allocator.refusal is not None
    assert queue_allocator.refusal.startswith(f"queue T-0, and {QUEUES_MAX - 1} others cannot grow")


def test_a_queue_whose_only_message_a_crash_took_says_that_it_has_none(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, [b"kept"], OTHER)
    begin = put(store, [b"torn"])
    crash(store)
    write_at(tmp_path / "commitlog" / FIRST, begin, bytes(100))
    again = new_store()
    assert again.open().end == begin
    result = again.get_message(QUEUE, 0, 9, ReadLimits())
    assert (result.status, result.next_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
