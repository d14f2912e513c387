"""A master and its slave, in one event loop and with one clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.store.config import FlushDiskType
from tests.broker.replication.slave import log_of
from tests.support.broker.running_broker import RunningBroker, StartBroker

MASTER = Replication(port=0)
STEP_MS = 250


@dataclass
class Pair:
    """The two brokers."""

    master: RunningBroker
    slave: RunningBroker

    @property
    def state(self) -> SlaveState:
        return state_of(self.slave)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so`, while the clock runs."""
        await until(self.slave.clock, is_so)

    async def same(self) -> None:
        """Waits until the slave has the master's log and tables."""
        end = self.master.broker.store.positions().log_end
        await self.until(lambda: self.slave.broker.store.positions().dispatched_end >= end)
        assert log_of(self.slave) == log_of(self.master)

    async def synced(self) -> None:
        """Waits until the slave has taken in all tables again."""
        await self.until(lambda: self.state.is_connected)
        for _ in range(2):
            await self._synced_after(self.state.synced_ms)

    async def _synced_after(self, time_ms: int) -> None:
        await self.until(lambda: self.state.synced_ms > time_ms)


async def until(clock: ManualClock, is_so: Callable[[], bool]) -> None:
    """Waits until `is_so`, while the clock runs.

    A thread sleeps: where the brokers' threads run late, the clock runs slowly, too.
    """
    while not is_so():
        clock.advance(STEP_MS)
        await asyncio.to_thread(time.sleep, 0.002)


def state_of(slave: RunningBroker) -> SlaveState:
    state = slave.broker.services.slave_state
    assert state is not None
    return state


def slave_config(master: RunningBroker, **changes: Any) -> Replication:
    address = f"127.0.0.1:{master.ready.remoting_port}"
    return Replication(role=BrokerRole.SLAVE, broker_id=1, master=address, **changes)


@asynccontextmanager
async def pair(
    start_broker: StartBroker,
    replication: Replication = MASTER,
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
    **configuration: Any,
) -> AsyncIterator[Pair]:
    """Yields a master and a slave that is started after it."""
    clock = ManualClock()
    async with (
        start_broker(
            flush,
            clock=clock,
            folder="master",
            replication=replication,
            remoting_port=0,
            **configuration,
        ) as master,
        start_broker(
            flush,
            clock=clock,
            folder="slave",
            replication=slave_config(master),
            remoting_port=0,
            **configuration,
        ) as slave,
    ):
        yield Pair(master, slave)
