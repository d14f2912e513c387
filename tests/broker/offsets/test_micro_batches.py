"""Micro-batches that Spark queries report, and the times of commits."""

from __future__ import annotations

from pathlib import Path

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.micro_batches import PARTS_MAX, MicroBatches
from rocketpy_broker.store.values import QueueKey


def queues(first: int, count: int) -> list[QueueKey]:
    return [QueueKey("T", number) for number in range(first, first + count)]


def test_a_part_that_is_sent_again_counts_once() -> None:
    batches = MicroBatches(ManualClock())
    for _ in range(3):
        batches.add("g", 7, "driver", queues(0, 2), None)
    batches.add("g", 7, "driver", queues(2, 3), 10)
    found = batches.get("g")
    assert found is not None
    assert (found.queue_count, found.message_count) == (5, 10)
    batches.add("g", 8, "driver", queues(0, 1), 1)
    found = batches.get("g")
    assert found is not None
    assert (found.token, found.queue_count, found.message_count) == (8, 1, 1)


def test_a_report_of_many_parts_takes_bounded_memory() -> None:
    batches = MicroBatches(ManualClock())
    for number in range(2 * PARTS_MAX):
        batches.add("g", 7, "driver", queues(number, 1), None)
    found = batches.get("g")
    assert found is not None
    assert found.queue_count == PARTS_MAX


def test_the_time_of_a_commit_follows_the_wall_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    committed = ConsumerOffsetManager(tmp_path, clock)
    committed.commit("g", "T", 0, 1)
    assert committed.last_commit_ms("g", "T") == clock.now_ms()
    clock.jump(3_600_000)
    committed.commit("g", "T", 0, 2)
    assert committed.last_commit_ms("g", "T") == clock.now_ms()
    clock.advance(500)
    assert committed.last_commit_ms("g", "T") == clock.now_ms() - 500


def test_the_time_of_a_commit_is_known_as_long_as_its_offset(tmp_path: Path) -> None:
    clock = ManualClock()
    committed = ConsumerOffsetManager(tmp_path, clock)
    committed.commit("g", "T", 0, 1)
    clock.advance(3_600_000)
    assert not committed.is_committing("g", "T")
    assert committed.last_commit_ms("g", "T") == clock.now_ms() - 3_600_000
    assert committed.delete_if("g", "T", {0: 1})
    assert committed.last_commit_ms("g", "T") is None
