"""Block appends in process: the broker's path from received bytes to log and queue.

Against one raw positional write of the same bytes into an allocated file. Both write fresh pages;
nothing is flushed. Files are in a temporary directory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data
from benchmarks.harness import Result, compare
from rocketpy_broker.config import DAY_MS, BrokerConfig
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.delay.schedule import DelaySchedule, TimerLimits
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.config import FlushDiskType, FlushTimes, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import Host

SEGMENT_BYTES = 1 << 30
ROUND_BYTES = 64 << 20
ROUNDS = 11
BLOCK_BYTES = 1 << 20
CASES = [(100, 0.15), (1024, 0.4)]
MESSAGES_PER_SECOND_MIN = 1.0


@dataclass
class RawFile:
    """An allocated file, written from start to end repeatedly."""

    descriptor: int
    position: int = 0

    def write(self, block: bytes) -> None:
        os.pwrite(self.descriptor, block, self.position)
        self.position += len(block)


def open_store(folder: Path, *, index_enable: bool = True, is_opened: bool = True) -> MessageStore:
    """Returns a store with ASYNC_FLUSH."""
    config = StoreConfig(
        folder,
        SEGMENT_BYTES,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        index_enable=index_enable,
    )
    store = MessageStore(config, SystemClock(), Host.parse("127.0.0.1:8081"))
    if is_opened:
        store.open()
    return store


def open_service(folder: Path, *, index_enable: bool = True) -> tuple[MessageStore, SendService]:
    """Returns a store with ASYNC_FLUSH and its append service."""
    clock = SystemClock()
    store = open_store(folder, index_enable=index_enable)
    topics = TopicConfigManager(folder / "config", clock, "DefaultCluster", "broker-a")
    topics.load()
    asyncio.run(topics.update(TopicConfig(data.TOPIC, 8, 8), create_only=True))
    group_commit = GroupCommit(store, clock, FlushDiskType.ASYNC_FLUSH, FlushTimes())
    timer = TimerLimits(True, 3 * DAY_MS, 0, lambda: 0)
    schedule = DelaySchedule(
        store.config.delay_levels, clock, timer, store.config.commit_log_segment_bytes
    )
    config = BrokerConfig(folder)
    return store, SendService(store, topics, group_commit, schedule, clock, config)


def run_case(body_bytes: int, goal: float) -> list[Result]:
    """Returns the ratio and, for small bodies, messages a second."""
    count = BLOCK_BYTES // (body_bytes + 180)
    block = data.block(count, body_bytes)
    blocks = ROUND_BYTES // len(block.records)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        store, service = open_service(folder / "store")
        descriptor = os.open(folder / "raw", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, SEGMENT_BYTES)
        raw = RawFile(descriptor)

        def ours() -> None:
            for _ in range(blocks):
                service.append_now(data.TOPIC, 0, block.records, block.record_sizes)

        def baseline() -> None:
            for _ in range(blocks):
                raw.write(block.records)

        comparison = compare(ours, baseline, ROUNDS)
        os.close(descriptor)
        store.close()
    speed = blocks * count / comparison.seconds / 1e6
    detail = (
        f"{speed:.2f} M msgs/s, {blocks * len(block.records) / comparison.seconds / 1e9:.2f} GB/s"
    )
    results = [
        Result(
            f"append / raw write, {body_bytes} B", comparison.ratio, "ratio", goal, detail=detail
        )
    ]
    if body_bytes == CASES[0][0]:
        results.append(
            Result(f"append, {body_bytes} B", speed, "M msgs/s", MESSAGES_PER_SECOND_MIN)
        )
    return results


def run() -> list[Result]:
    """Returns all cases, in a process that is set as the broker's."""
    process_tuning.keep_freed_memory()
    return [result for body_bytes, goal in CASES for result in run_case(body_bytes, goal)]
