"""Batches in process: the broker's cost of stages and commits beside plain appends.

All rounds run on one broker without a server, with ASYNC_FLUSH, over fresh messages. The figure is
processor time of all threads, since staging uses some of its own. The gap is the longest delay of a
task that sleeps a millisecond at a time while 10,000 tasks commit.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import data
from benchmarks.harness import Result
from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime import process_tuning
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.batches.log import Batch, StagedTask
from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.services.batches.staging_service import StageCommand, Staged
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import BatchJob, TaskAttempt
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import Host

ROUNDS = 5
BLOCK_BYTES = 2 << 20
ROUND_BYTES = 128 << 20
TASKS = 10_000
WAIT_MS_MAX = 600_000
# Staging and committing against appending, in processor time.
COST_GOAL = 1.5
TASKS_SECONDS_MAX = 5.0
GAP_MS_MAX = 20.0


@dataclass
class Bench:
    """A broker's services, and the number of the next batch."""

    store: MessageStore
    services: BrokerServices
    batch_id: int = 0
    gaps_ms: list[float] = field(default_factory=list)

    async def append(self, block: data.Block, count: int) -> float:
        """Appends `count` blocks; returns processor seconds."""
        begin = time.process_time()
        for _ in range(count):
            self.services.sends.append_now(data.TOPIC, 0, block.records, block.record_sizes)
            await asyncio.sleep(0)
        return time.process_time() - begin

    async def stage(self, block: data.Block, task: int, count: int) -> StagedTask:
        """Stages an attempt at a task with `count` blocks; returns the staged task."""
        attempt = TaskAttempt(BatchJob("writer", self.batch_id, 1), task, 1)
        for number in range(count):
            await self._ask(attempt, number, block)
        staged = await self._ask(attempt, count, None)
        return StagedTask(task, 1, staged.counts)

    async def _ask(self, attempt: TaskAttempt, number: int, block: data.Block | None) -> Staged:
        records, sizes = (block.records, block.record_sizes) if block else (b"", b"")
        command = StageCommand(
            attempt, number, data.TOPIC, 0, records, sizes, is_last=block is None
        )
        return await self.services.batches.staging.stage(command)

    async def commit(self, tasks: list[StagedTask]) -> float:
        """Commits and waits for the end; returns processor seconds."""
        begin = time.process_time()
        batch = Batch(BatchJob("writer", self.batch_id, 1), tuple(tasks))
        state = await self.services.batches.commits.commit(batch, WAIT_MS_MAX)
        assert state.outcome is Outcome.COMMITTED, state
        self.batch_id += 1
        return time.process_time() - begin

    async def end_round(self) -> None:
        """Flushes, and removes the files of stored batches."""
        self.store.dispatch()
        plan = self.store.plan_flush()
        await asyncio.to_thread(plan.run)
        self.store.flushed(plan)
        await self.services.batches.commits.remove_stored()

    async def watch(self) -> None:
        """Records the delays that other tasks cause to this one."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(0.001)
            self.gaps_ms.append((time.perf_counter() - begin - 0.001) * 1000)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Bench]:
    """Yields a broker without a server."""
    config = BrokerConfig(folder, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    store_config = StoreConfig(folder, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    store = MessageStore(store_config, SystemClock(), Host.parse("127.0.0.1:8081"))
    context = BrokerContext(config, SystemClock(), SystemClock(), store)
    services = BrokerServices(context)
    store.open()
    for load in context.lifecycle.loads:
        load()
    await services.topics.update(TopicConfig(data.TOPIC, 8, 8), create_only=True)
    async with TaskScope() as scope:
        await services.batches.commits.recover(scope.start)
        process_tuning.freeze_start_objects()
        yield Bench(store, services)
    for close in reversed(context.lifecycle.closes):
        close()
    store.close()


async def run_cost(bench: Bench, body_bytes: int) -> Result:
    """Returns the cost of stages and commits against appends of the same blocks."""
    block = data.block(BLOCK_BYTES // (body_bytes + 180), body_bytes)
    count = ROUND_BYTES // len(block.records)
    messages = count * len(block.record_sizes) // 4
    ratios, stage_us, commit_us = [], [], []
    for _ in range(ROUNDS + 1):
        appended = await bench.append(block, count)
        begin = time.process_time()
        task = await bench.stage(block, 0, count)
        staged = time.process_time() - begin
        committed = await bench.commit([task])
        await bench.end_round()
        ratios.append((staged + committed) / appended)
        stage_us.append(staged / messages * 1e6)
        commit_us.append(committed / messages * 1e6)
    detail = (
        f"{statistics.median(stage_us[1:]):.2f} us a message to stage, "
        f"{statistics.median(commit_us[1:]):.2f} us to commit"
    )
    name = f"stage and commit / append, processor time, {body_bytes} B"
    ratio = statistics.median(ratios[1:])
    return Result(name, ratio, "ratio", COST_GOAL, at_most=True, detail=detail)


async def run_tasks(bench: Bench, scope: TaskScope) -> list[Result]:
    """Commits 10,000 tasks of one message each."""
    block = data.block(1, 100)
    appended = await bench.append(block, TASKS)
    tasks = [await bench.stage(block, task, 1) for task in range(TASKS)]
    scope.start(bench.watch())
    await asyncio.sleep(0.1)
    bench.gaps_ms.clear()
    committed = await bench.commit(tasks)
    gap_ms = max(bench.gaps_ms)
    await bench.end_round()
    detail = f"{committed:.2f} s, appending them {appended:.2f} s"
    name = f"{TASKS:,} tasks commit, processor time beyond appending"
    beyond = committed - appended
    return [
        Result(name, beyond, "s", TASKS_SECONDS_MAX, at_most=True, detail=detail),
        Result("longest gap of the event loop meanwhile", gap_ms, "ms", GAP_MS_MAX, at_most=True),
    ]


async def run_all() -> list[Result]:
    """Returns the results for small and large bodies, and for many tasks."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        async with opened(Path(name)) as bench:
            results = [await run_cost(bench, body_bytes) for body_bytes in (100, 1024)]
            async with TaskScope() as scope:
                results += await run_tasks(bench, scope)
            return results


def run() -> list[Result]:
    """Returns all cases."""
    process_tuning.keep_freed_memory()
    process_tuning.switch_threads_often()
    return asyncio.run(run_all())
