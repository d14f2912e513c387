"""Subjects of the crash suite: what they send, their work after the answers, and what must come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import OP_QUEUE
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.delay import test_levels as delay
from tests.support.blocks import wire_block
from tests.support.broker import retries, transactions
from tests.support.broker.retries import DEAD_LETTERS, RETRY_TOPIC, Meant
from tests.support.broker.running_broker import RunningBroker, until
from tests.support.broker.transactions import COMMIT, ROLLBACK, Half, Producer, end, rounds

Found = dict[str, list[Any]]
# All levels that the subjects use are over by then.
ALL_DUE_MS = 20_000
# A file of `config/`, and places in it beyond the end of the log or of the queue.
Saved = tuple[str, dict[str, Any]]


@dataclass
class Subject:
    """Messages with which a broker has work after it has answered their sender."""

    producer: Producer
    # The queues to which that work appends: a crash may come before the append to any of them.
    appends_to: tuple[QueueKey, ...] = ()
    saved: tuple[Saved, ...] = ()
    wanted: Found = field(default_factory=dict)

    async def send(self, running: RunningBroker) -> None:
        """Sends all messages; the broker answers each."""
        raise NotImplementedError

    async def work(self, running: RunningBroker) -> None:
        """Lets the broker do a part of its work, as far as its appends are not refused."""
        raise NotImplementedError

    async def finish(self, running: RunningBroker) -> None:
        """Lets the broker do the rest, and gives it time to do anything twice."""
        raise NotImplementedError

    async def found(self, running: RunningBroker) -> Found:
        """Returns what readers see."""
        raise NotImplementedError


class Delivered(Subject):
    """Messages that the broker delivers in turns, when their levels are over."""

    # A queue that gets messages of every level, and its name in `wanted`.
    longest: ClassVar[tuple[QueueKey, str]]

    async def work(self, running: RunningBroker) -> None:
        # Shorter than the time until the next save.
        await delay.advance(running, 1_200)

    async def finish(self, running: RunningBroker) -> None:
        queue, name = self.longest
        running.clock.advance(ALL_DUE_MS)
        await until(lambda: delay.visible(running, *queue) >= len(self.wanted[name]))
        await delay.advance(running, ALL_DUE_MS)


class Delayed(Delivered):
    """Messages of two delay levels; all of the first one are due in the same turn."""

    longest = (QueueKey("T", 1), "1")
    queue_ids = (1, 2, 1, 3)

    async def send(self, running: RunningBroker) -> None:
        for number, queue_id in enumerate(self.queue_ids):
            await self._send(running, 1_000, 1, b"%d" % number, queue_id)
        await self._send(running, 5_000, 2, b"later", 1)

    async def _send(
        self, running: RunningBroker, delay_ms: int, level: int, body: bytes, queue_id: int
    ) -> None:
        answer = await delay.send(running, level, body, queue_id=queue_id)
        assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark

    async def found(self, running: RunningBroker) -> Found:
        return {
            str(queue_id): await delay.bodies(running, queue_id=queue_id) for queue_id in (1, 2, 3)
        }


class Timed(Delayed):
    """The same messages with delivery times."""

    async def _send(
        self, running: RunningBroker, delay_ms: int, level: int, body: bytes, queue_id: int
    ) -> None:
        properties = {"TIMER_DELIVER_MS": [str(running.clock.now_ms() + delay_ms)]}
        block = wire_block("T", [body], properties=properties)
        answer = await running.append_block("T", queue_id, block)
        assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark


class SentBack(Delivered):
    """Messages that consumers send back: for two levels, and to the dead letters."""

    longest = (QueueKey(RETRY_TOPIC, 0), "retry")

    async def send(self, running: RunningBroker) -> None:
        given = [await retries.send(running, b"%d" % number) for number in range(6)]
        levels = (1, 2, -1, 1, 2, -1)
        meant = [Meant(offset, level) for offset, level in zip(given, levels, strict=True)]
        answer = await retries.answered(running, *meant)
        assert [each.status.code for each in answer.messages] == [ResponseCode.SUCCESS] * 6

    async def found(self, running: RunningBroker) -> Found:
        again = await retries.records(running)
        dead = await retries.records(running, DEAD_LETTERS)
        return {
            "retry": sorted((one.body, one.reconsume_times) for one in again),
            "dead": [one.body for one in dead],
        }


@dataclass
class Prepared(Subject):
    """Transactions: one committed, one rolled back, two open."""

    halves: list[Half] = field(default_factory=list)

    async def send(self, running: RunningBroker) -> None:
        self.halves = [await transactions.prepare(running, name) for name in "abcd"]
        await rounds(running)
        self.checked = self.producer.halves[1]

    async def work(self, running: RunningBroker) -> None:
        for half, resolution in ((self.halves[0], COMMIT), (self.checked, ROLLBACK)):
            assert await end(running, half, resolution) in (
                ResponseCode.SUCCESS,
                ResponseCode.SERVICE_NOT_AVAILABLE,
            )
        await check_all(running)

    async def finish(self, running: RunningBroker) -> None:
        # Their producers got no answer, or got it in vain.
        for half, resolution in ((self.halves[0], COMMIT), (self.checked, ROLLBACK)):
            assert await end(running, half, resolution) == ResponseCode.SUCCESS
        assert await end(running, self.halves[0], ROLLBACK) == ResponseCode.ILLEGAL_OPERATION
        self.producer.asked.clear()
        await rounds(running, 2)
        assert {one.transaction_id for one in self.producer.asked} == {"c", "d"}
        await end(running, self.producer.halves[0], COMMIT, from_check=True)
        await end(running, self.halves[3], COMMIT)
        self.producer.asked.clear()
        await rounds(running, 2)
        assert self.producer.asked == []

    async def found(self, running: RunningBroker) -> Found:
        return {"T": await transactions.bodies(running)}


class GivenUp(Prepared):
    """A transaction that is checked for the last time, and one that was rolled back."""

    async def send(self, running: RunningBroker) -> None:
        self.halves = [await transactions.prepare(running, name) for name in "ab"]
        assert await end(running, self.halves[1], ROLLBACK) == ResponseCode.SUCCESS
        await rounds(running, 15)
        self.checked = self.producer.halves[-1]

    async def work(self, running: RunningBroker) -> None:
        await check_all(running)

    async def finish(self, running: RunningBroker) -> None:
        await rounds(running, 3)
        for half in (self.halves[0], self.checked):
            assert await end(running, half, COMMIT) == ResponseCode.ILLEGAL_OPERATION

    async def found(self, running: RunningBroker) -> Found:
        given_up = await transactions.bodies(running, CHECK_MAX_TIME_TOPIC, 0)
        return {"T": await transactions.bodies(running), "given up": given_up}


async def check_all(running: RunningBroker) -> None:
    """Runs a round of checks, which ends where an append is refused."""
    running.clock.jump(30_000)
    with suppress(StoreClosedError):
        await running.broker.services.transactions.checks.check_all()
    await asyncio.sleep(0)


DELIVERED = {"1": [b"0", b"2", b"later"], "2": [b"1"], "3": [b"3"]}
DELIVERY_QUEUES = tuple(QueueKey("T", queue_id) for queue_id in (1, 2, 3))
SAVED_DELIVERIES: Saved = ("deliveryLog.json", {"logOffset": 2_000})

SUBJECTS: dict[str, Callable[[Producer], Subject]] = {
    "delayed": lambda producer: Delayed(
        producer,
        DELIVERY_QUEUES,
        (SAVED_DELIVERIES, ("delayOffset.json", {"offsetTable": {"1": 2}})),
        DELIVERED,
    ),
    "timed": lambda producer: Timed(
        producer,
        DELIVERY_QUEUES,
        (
            SAVED_DELIVERIES,
            ("deliveryLog.json", {"timer": {"pendingOffset": 2, "readOffset": 2}}),
        ),
        DELIVERED,
    ),
    "sent back": lambda producer: SentBack(
        producer,
        (QueueKey(RETRY_TOPIC, 0),),
        (SAVED_DELIVERIES, ("delayOffset.json", {"offsetTable": {"3": 1, "4": 1}})),
        {"retry": [(b"%d" % number, 1) for number in (0, 1, 3, 4)], "dead": [b"2", b"5"]},
    ),
    "prepared": lambda producer: Prepared(
        producer,
        (QueueKey("T", 1), HALF_QUEUE, OP_QUEUE),
        (("transactionLog.json", {"logOffset": 2_000}),),
        {"T": [b"a", b"c", b"d"]},
    ),
    "given up": lambda producer: GivenUp(
        producer,
        (QueueKey(CHECK_MAX_TIME_TOPIC, 0), OP_QUEUE),
        (("transactionLog.json", {"logOffset": 2_000}),),
        {"T": [], "given up": [b"a"]},
    ),
}
