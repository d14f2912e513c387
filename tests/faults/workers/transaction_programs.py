"""Worker programs with transactions: a broker's services, killed at a place.

A place is a stage and a step of it: before or after the append of a record of a kind, after its
flush and before the answer, or at a check-back. The worker kills itself there, as `kill -9` does.
Bodies start with the decision of their transactions: c, committed, or r, rolled back.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketpy_broker.broker import Broker
from rocketpy_broker.config import BrokerConfig, TransactionTimes
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import OP_QUEUE, Operation
from rocketpy_broker.services.transactions.service import DECISIONS
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import AppendResult, QueueKey, ReadLimits
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.rocketpy.v1 import groups_pb2
from rocketpy_proto.rocketpy.v1.transactions_pb2 import EndTransactionRequest
from tests.faults.histories.history import body_of, hash_of, id_of
from tests.faults.workers.store_use import NO_END, READ_BYTES_MAX
from tests.faults.workers.zygote import Link
from tests.support.blocks import bodies_of, wire_block

QUEUE = QueueKey("T", 0)
GROUP = "producers"
ROUND_MS = 30_000
BODY_BYTES = 60
STEPS_MAX = 2_000
KINDS = {HALF_QUEUE: "half", OP_QUEUE: "op", QUEUE: "final"}


@dataclass
class Place:
    """The worker's end: at the `times_left`-th time at a place."""

    link: Link
    name: str
    times_left: int
    stage: str = "start"
    is_armed: bool = True

    def reached(self, step: str) -> None:
        """Ends the worker if this is the place."""
        if not self.is_armed or f"{self.stage}: {step}" != self.name:
            return
        self.times_left -= 1
        if self.times_left == 0:
            self.link.emit("at", self.name)
            os.kill(os.getpid(), signal.SIGKILL)


def end_request(
    group: str,
    transaction_id: str,
    commit_log_offset: int,
    queue_offset: int,
    decision: Operation,
    *,
    from_check: bool = False,
) -> EndTransactionRequest:
    [resolution] = [each for each, found in DECISIONS.items() if found is decision]
    return EndTransactionRequest(
        producer_group=group,
        transaction_id=transaction_id,
        commit_log_offset=commit_log_offset,
        queue_offset=queue_offset,
        resolution=resolution,
        from_transaction_check=from_check,
    )


@dataclass
class Producer:
    """A broker's services, without a server, and the producer that answers their check-backs."""

    link: Link
    broker: Broker
    clock: ManualClock
    place: Place
    # Each transaction by all that may name it: its half message, and its check-backs.
    handles: defaultdict[str, list[EndTransactionRequest]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def ask(self, question: groups_pb2.CheckTransaction) -> bool:
        """Receives a check-back of the broker."""
        name = question.transaction_id
        self.link.emit("asked", name)
        self._note(name, question.commit_log_offset, question.queue_offset, from_check=True)
        self.place.reached("asked")
        return True

    def _note(self, name: str, commit_log_offset: int, offset: int, *, from_check: bool) -> None:
        decision = Operation.COMMIT if name.startswith("c") else Operation.ROLLBACK
        self.handles[name].append(
            end_request(GROUP, name, commit_log_offset, offset, decision, from_check=from_check)
        )

    async def prepare(self, name: str) -> None:
        """Sends a half message."""
        self.place.stage = "prepare"
        self.link.emit("preparing", name)
        properties = {"TRAN_MSG": ["true"], "PGROUP": [GROUP], "UNIQ_KEY": [name]}
        block = wire_block(QUEUE.topic, [body_of(name, BODY_BYTES)], properties=properties)
        appends = self.broker.services.sends
        stored = appends.append_now(QUEUE.topic, QUEUE.queue_id, block.records, block.record_sizes)
        await appends.acknowledged(stored)
        self.link.emit("prepared", name)
        result = stored.result
        self._note(name, result.physical_offset, result.queue_offset, from_check=False)

    async def end(self, name: str, command: EndTransactionRequest) -> None:
        """Commits or rolls back."""
        self.place.stage = DECISIONS[command.resolution].value
        self.link.emit("ending", name)
        await self.broker.services.transactions.service.end(command)
        self.link.emit("ended", name)

    async def check(self) -> None:
        """Runs a round of check-backs, 30 s later."""
        self.place.stage = "check"
        self.clock.jump(ROUND_MS)
        await self.broker.services.transactions.checks.check_all()

    def install(self) -> None:
        """Adds the places to the broker's calls."""
        store, group_commit = self.broker.store, self.broker.services.flush.group_commit
        append, wait = store.append, group_commit.wait
        is_acknowledged = group_commit.is_acknowledged

        def appending(queue: QueueKey, *given: Any) -> AppendResult:
            self.place.reached(f"before {KINDS.get(queue)}")
            result = append(queue, *given)
            self.place.reached(f"after {KINDS.get(queue)}")
            return result

        def acknowledged(end_offset: int) -> bool:
            if is_acknowledged(end_offset):
                self.place.reached("unanswered")
                return True
            return False

        async def waiting(end_offset: int) -> None:
            if not acknowledged(end_offset):
                await wait(end_offset)
                self.place.reached("unanswered")

        vars(store)["append"] = appending
        vars(group_commit)["is_acknowledged"] = acknowledged
        vars(group_commit)["wait"] = waiting
        vars(self.broker.services.transactions.checks)["_ask"] = self.ask


@asynccontextmanager
async def producing(
    link: Link, folder: str, flush: str, place: str = "", times: int = 0
) -> AsyncIterator[Producer]:
    """Yields the services, started over a folder; they are never stopped."""
    config = BrokerConfig(
        Path(folder),
        flush_disk_type=FlushDiskType(flush),
        commit_log_segment_bytes=1 << 20,
        consume_queue_file_bytes=20_000,
        transactions=TransactionTimes(check_max=STEPS_MAX),
    )
    clock = ManualClock()
    broker = Broker(config, clock)
    producer = Producer(link, broker, clock, Place(link, place, times))
    producer.install()
    broker.store.open()
    for load in broker._lifecycle.loads:
        load()
    async with broker._tasks as scope:
        for start in broker._lifecycle.starts:
            await start(scope)
        if not broker.services.topics.exists(QUEUE.topic):
            await broker.services.topics.update(TopicConfig(QUEUE.topic, 1, 1), create_only=True)
        yield producer


async def _transact(plan: random.Random, prefix: str, producer: Producer) -> None:
    for number in range(STEPS_MAX):
        chance = plan.random()
        names = sorted(producer.handles)
        if chance < 0.2:
            await producer.check()
        elif chance < 0.6 or not names:
            await producer.prepare(f"{plan.choice('cr')}{prefix}{number}")
        else:
            name = plan.choice(names)
            await producer.end(name, plan.choice(producer.handles.pop(name)))


def transact(
    link: Link, folder: str, flush: str, seed: int, prefix: str, place: str, times: int
) -> None:
    """Reports the state after an earlier kill, and continues until the place is reached.

    Preparations, ends and checks are random. Without a place, it only reports.
    """

    async def run() -> None:
        async with producing(link, folder, flush, place, times) as producer:
            producer.place.is_armed = False
            await _survey(producer)
            producer.place.is_armed = True
            if place:
                await _transact(random.Random(seed), prefix, producer)

    asyncio.run(run())


async def _survey(producer: Producer) -> None:
    """Reports visible messages and check-backs, and how the transactions end."""
    tell_shown(producer)
    await producer.check()
    for name, commands in sorted(producer.handles.items()):
        for command in commands:
            await producer.end(name, command)
    producer.link.emit("answered")
    await producer.check()
    tell_shown(producer)
    producer.handles.clear()
    producer.link.emit("surveyed")


def tell_shown(producer: Producer) -> None:
    """Reports all messages that readers see."""
    store, bodies = producer.broker.store, list[bytes]()
    bounds = store.range_of(QUEUE)
    while len(bodies) < bounds.max_offset:
        found = store.get_message(QUEUE, len(bodies), NO_END, ReadLimits.of_bytes(READ_BYTES_MAX))
        bodies += bodies_of(found.data, found.sizes)
    shown = [(offset, id_of(body), hash_of(body)) for offset, body in enumerate(bodies)]
    producer.link.emit("shown", shown)
