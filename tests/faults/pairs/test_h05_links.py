"""H05: a link that is cut at any byte, or holds all; and a master that lies about its log."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.runtime.clock import ManualClock, sleep
from rocketpy_broker.server.ha.connection import FRAME, REPORT
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode as Code
from tests.broker.replication.pair import MASTER, Pair, pair
from tests.broker.replication.slave import log_of
from tests.support.broker.relay import HOST, Relay
from tests.support.broker.running_broker import RunningBroker, StartBroker

CUTS_QUICK, CUTS_TORTURE = 20, 200
# The cuts between two times at which the link holds everything.
CUTS_A_ROUND = 10
BODY_BITS_MAX, SEGMENT = 14, 256 << 10
PAUSE_MS = 100
SYNC = Replication(BrokerRole.SYNC_MASTER, port=0)
# A master's role, and the codes of its answers.
ROLES = {
    "async": (MASTER, {Code.SUCCESS}),
    "sync": (SYNC, {Code.SUCCESS, Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE}),
    "two": (replace(SYNC, in_sync_replicas=2), {Code.SUCCESS, Code.FLUSH_SLAVE_TIMEOUT}),
}
FLUSHES = {"sync": FlushDiskType.SYNC_FLUSH}
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@asynccontextmanager
async def linked(
    start_broker: StartBroker, replication: Replication, flush: FlushDiskType, *ports: str
) -> AsyncIterator[tuple[Pair, Relay]]:
    """Yields a pair with a relay at these ports of the master."""
    clock = ManualClock()

    def start(folder: str, config: Replication) -> AbstractAsyncContextManager[RunningBroker]:
        options = {"folder": folder, "replication": config, "commit_log_segment_bytes": SEGMENT}
        return start_broker(flush, clock=clock, remoting_port=0, **options)

    async with start("master", replication) as master:
        with Relay(*(getattr(master.ready, port) for port in ports)) as relay:
            address = f"{HOST}:{master.ready.remoting_port}"
            async with start("slave", Replication(BrokerRole.SLAVE, 1, address)) as slave:
                yield Pair(master, slave), relay


class Sender:
    """A sender of one message after the other; `answers` counts the codes of their answers."""

    def __init__(self, both: Pair, chance: random.Random) -> None:
        self._both = both
        self._chance = chance
        self._is_sync = both.master.broker.services.replication.slaves.is_waited_for
        self._is_stopped = False
        self.answers = Counter[int]()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        master, slave = (each.broker.store for each in (self._both.master, self._both.slave))
        while not self._is_stopped:
            body = self._chance.randbytes(1 << self._chance.randint(0, BODY_BITS_MAX))
            answer = await self._both.master.append("T", self._chance.randrange(2), body)
            if answer.status.code == Code.SUCCESS and self._is_sync:
                # No other message is under way.
                assert slave.positions().log_end >= master.positions().log_end
            self.answers[answer.status.code] += 1
            await sleep(self._both.master.clock, PAUSE_MS)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so`, and for the next acknowledgement."""
        await self._both.until(lambda: is_so() or self._task.done())
        goal = self.answers[Code.SUCCESS]
        await self._both.until(lambda: self.answers[Code.SUCCESS] > goal or self._task.done())

    async def stop(self) -> None:
        self._is_stopped = True
        await self._both.until(self._task.done)
        await self._task


async def _cut(both: Pair, relay: Relay, chance: random.Random) -> None:
    goal = relay.cuts + CUTS_A_ROUND
    relay.cut_often(chance)
    await both.until(lambda: relay.cuts >= goal)


@pytest.mark.parametrize("cuts", [CUTS_QUICK, pytest.param(CUTS_TORTURE, marks=torture)])
@pytest.mark.parametrize("role", ROLES)
async def test_h05_a_link_that_is_cut_at_any_byte_loses_nothing(
    start_broker: StartBroker, seed: int, role: str, cuts: int
) -> None:
    chance = random.Random(seed)
    replication, codes = ROLES[role]
    flush = FLUSHES.get(role, FlushDiskType.ASYNC_FLUSH)
    async with linked(start_broker, replication, flush, "remoting_port", "ha_port") as (
        both,
        relay,
    ):
        await both.master.create_topic("T", queues=2)
        await both.synced()
        sender = Sender(both, chance)
        while relay.cuts < cuts:
            await _cut(both, relay, chance)
            relay.heal()
            await sender.until(lambda: both.state.is_connected)
            relay.hold()
            await both.until(lambda: not both.state.is_connected)
            relay.heal()
            await sender.until(lambda: both.state.is_connected)
        await sender.stop()
        await both.same()
        await both.synced()
        assert sender.answers.keys() <= codes
        ends = [each.broker.store.range_of(QueueKey("T", 1)) for each in (both.master, both.slave)]
        assert ends[0] == ends[1]


@dataclass(frozen=True)
class Lie:
    """A frame for a slave that has the whole log, and words of the slave's refusal.

    `shift` is added to the offset that the slave has asked for.
    """

    words: str
    shift: int = 0
    content: Callable[[bytes], bytes] = bytes
    size: int | None = None

    def frame(self, offset: int, log: bytes) -> bytes:
        content = self.content(log[offset:])
        size = len(content) if self.size is None else self.size
        return FRAME.pack(offset + self.shift, size) + content


LIES = {
    "an earlier offset": Lie("it sends the log from offset", shift=-1),
    "a later offset": Lie("it sends the log from offset", shift=1),
    "a distant offset": Lie("it sends the log from offset", shift=1 << 62),
    "a negative size": Lie("it sends a frame of -1 bytes", size=-1),
    "a huge size": Lie("it sends a frame of 1073741824 bytes", size=1 << 30),
    "an earlier end": Lie("its log ends at 1, and this slave's ends at", content=lambda _: b""),
    "other bytes": Lie("the logs of master and slave differ", content=lambda log: log[:-1] + b"?"),
    "no record": Lie("no record starts here", content=lambda log: log + b"?" * 100),
    "a record of another place": Lie(
        "the record is damaged, or names another offset", content=lambda log: log + b"\0" + log
    ),
}


@pytest.mark.parametrize("name", LIES)
async def test_h05_a_master_that_lies_about_its_log_is_refused_and_changes_nothing(
    start_broker: StartBroker, name: str
) -> None:
    lie, flush = LIES[name], FlushDiskType.ASYNC_FLUSH
    async with pair(start_broker, commit_log_segment_bytes=SEGMENT) as both:
        await both.master.create_topic("T", queues=1)
        await both.master.append("T", 0, b"one", b"two")
        await both.same()
        log = log_of(both.master)

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        [offset] = REPORT.unpack(await reader.readexactly(REPORT.size))
        writer.write(lie.frame(offset, log))
        await reader.read()
        writer.close()

    async with linked(start_broker, MASTER, flush, "remoting_port") as (both, _):
        async with await asyncio.start_server(tell, HOST, both.master.ready.ha_port):
            await both.until(lambda: lie.words in both.state.failure)
        assert log_of(both.slave) == log
        with Relay(both.master.ready.ha_port):
            await both.master.append("T", 0, b"three")
            await both.same()
            await both.synced()
