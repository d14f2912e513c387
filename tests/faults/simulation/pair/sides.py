"""The two sides of a pair: each has a disk, a clock, an address and at times a broker.

A crash is a copy of the disk at that moment. The old process goes on unheard on the old folder:
the network and the clients take nothing of it, and its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from rocketpy_broker.broker import Broker, Ready
from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.config import BrokerConfig, BrokerRole, Replication
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.message_store import MessageStore
from tests.faults.simulation.disk import CrashingDisk
from tests.faults.simulation.loop import VirtualClock
from tests.faults.simulation.machine import LEVELS, SEGMENT_BYTES, MachineGoneError
from tests.faults.simulation.pair.clock import SideClock
from tests.faults.simulation.pair.network import Network, NetworkedLoop, Process, process
from tests.faults.simulation.patches import INDEX_ENTRIES, INDEX_SLOTS, NoServer, patched
from tests.support.store.disk_calls import DiskCall

T = TypeVar("T")
REMOTING_PORT, HA_PORT = 10911, 10912
NEARLY_FULL_RATIO, USED_RATIO = 0.95, 0.5


@dataclass(eq=False)
class Life(Process):
    """A broker's process; `services` are None until it serves."""

    services: BrokerServices | None = None
    broker: Broker | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    is_done: bool = False


@dataclass
class Plan:
    """A crash at the `left`-th flush or append of a side from now on."""

    moment: str
    left: int
    is_power_cut: bool


class Side:
    """One of the two machines."""

    def __init__(self, pair: Sides, name: str, host: str) -> None:
        self._pair = pair
        self.name = name
        self.host = host
        self.clock = SideClock(pair.clock)
        self._number = 0
        self.disk = CrashingDisk(pair.root / f"{name}0", lambda: self._moment("flush"))
        self.disk.folder.mkdir()
        self.replication = Replication()
        self.life: Life | None = None
        self.plan: Plan | None = None
        self.is_full = False
        # Known from a life that served.
        self._durable_end = 0
        # True once this side has had its master's whole log since it last became a slave.
        self.was_in_sync = False

    @property
    def address(self) -> str:
        """The remoting address."""
        return f"{self.host}:{REMOTING_PORT}"

    @property
    def services(self) -> BrokerServices | None:
        """The services of the broker, while it serves and is not frozen."""
        if self.life is None or self.life.is_gone or self.clock.is_frozen:
            return None
        return self.life.services

    @property
    def store(self) -> MessageStore:
        """The store of the broker that runs."""
        assert self.life is not None
        assert self.life.broker is not None
        return self.life.broker.store

    @property
    def is_serving_master(self) -> bool:
        """True if it serves as a master."""
        return self.services is not None and self.services.slave_state is None

    def config(self) -> BrokerConfig:
        """Returns the broker's options."""
        return BrokerConfig(
            self.disk.folder,
            self.host,
            insecure=True,
            remoting_port=REMOTING_PORT,
            flush_disk_type=self._pair.flush,
            commit_log_segment_bytes=SEGMENT_BYTES,
            consume_queue_file_bytes=2_000,
            index_slot_count=INDEX_SLOTS,
            index_entry_count_max=INDEX_ENTRIES,
            flush_times=self._pair.times,
            persist_interval_ms=self._pair.persist_interval_ms,
            delay_levels=DelayLevels.parse(LEVELS),
            replication=self.replication,
            stop_grace_ms=1_000,
        )

    # --- Lives ---

    def start(self) -> None:
        """Starts a broker."""
        assert self.life is None
        self._pair.network.dark.discard(self.host)
        self._pair.network.changed()
        self.disk.has_failed = False
        self.life = Life(self.host)
        self._pair.spawn(self._live(self.life))

    async def _live(self, life: Life) -> None:
        process.set(life)
        try:
            config: BrokerConfig | None = self.config()
            while config is not None and not life.stopped.is_set():
                life.broker = broker = Broker(config, self.clock, NoServer)
                ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
                ready.add_done_callback(partial(self._ready, life, broker))
                await broker.serve_until(life.stopped, ready)
                life.services, config = None, broker.promoted
        except (OSError, BrokerError) as error:
            if not (life.is_gone or self.disk.has_failed or self.is_full):
                raise
            self._pair.say(self.name, "ended by", error)
        finally:
            life.services, life.is_done = None, True
            if self.life is life:
                self._pair.network.ended(life, is_silent=False)
                self.life = None

    def _ready(self, life: Life, broker: Broker, _done: object) -> None:
        if not life.is_gone:
            life.services = broker.services
            self._pair.say(self.name, "ready", broker._config.replication.role.value)

    async def stop(self) -> None:
        """Stops the broker in order."""
        life = self.life
        if life is not None:
            self._pair.say(self.name, "stops")
            life.stopped.set()
            while not life.is_done:
                await self._pair.pause(100)

    def crash(self, *, is_power_cut: bool) -> None:
        """Ends the broker at once."""
        life = self.life
        if life is None or life.is_gone:
            return
        self._pair.say(self.name, "crash", "power" if is_power_cut else "kill")
        self.plan = None
        store = None if life.broker is None else life.broker.store
        if store is not None and life.services is not None:
            self._durable_end = store.flushed_end
        self._number += 1
        self.disk = self.disk.copied(self._pair.root / f"{self.name}{self._number}")
        if is_power_cut:
            self._pair.network.dark.add(self.host)
            self.disk.cut(self._pair.chance)
            if self._pair.flush is FlushDiskType.ASYNC_FLUSH:
                self._pair.power_cuts.append(self._durable_end)
                # A slave may have what this side has lost; it follows no more.
                self._pair.other(self).was_in_sync = False
        self._pair.network.ended(life, is_silent=is_power_cut)
        life.services, self.life = None, None
        self.thaw()
        self._pair.end_process(life)

    def throw_away(self) -> None:
        """Empties the disk of a stopped side."""
        assert self.life is None
        self._number += 1
        self.disk = CrashingDisk(
            self._pair.root / f"{self.name}{self._number}", lambda: self._moment("flush")
        )
        self.disk.folder.mkdir()
        self.was_in_sync, self._durable_end = False, 0

    def freeze(self) -> None:
        """Stops the process, as SIGSTOP does."""
        self.clock.is_frozen = True
        self._pair.network.frozen.add(self.host)

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        if self.clock.is_frozen:
            self._pair.network.frozen.discard(self.host)
            self.clock.thaw()
            self._pair.network.changed()

    def _moment(self, moment: str) -> None:
        plan = self.plan
        if plan is not None and plan.moment == moment and self.life is not None:
            plan.left -= 1
            if plan.left <= 0:
                self.crash(is_power_cut=plan.is_power_cut)

    async def call(self, work: Awaitable[T]) -> T:
        """Returns a client's answer. Raises MachineGoneError after a crash."""
        life = self.life
        try:
            return await work
        finally:
            if life is None or life.is_gone:
                raise MachineGoneError


class Sides:
    """Both machines, the network between them, and the tasks of the run."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self.clock = VirtualClock()
        self.network = Network(self.clock, chance)
        self.flush = chance.choice(list(FlushDiskType))
        self.times = FlushTimes(flush_interval_ms=chance.choice([500, 5_000]))
        self.persist_interval_ms = chance.choice([5_000, 60_000])
        self.trace: list[str] = []
        # The durable ends of logs at power cuts that ASYNC_FLUSH does not survive.
        self.power_cuts: list[int] = []
        self.error: BaseException | None = None
        self._real_allocate = os.posix_fallocate
        self.loop = NetworkedLoop(self.clock, chance, is_slow=chance.random() < 0.15)
        self.loop.network = self.network
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.a, self.b = Side(self, "a", "127.0.0.1"), Side(self, "b", "127.0.0.2")

    @property
    def both(self) -> tuple[Side, Side]:
        """The two sides."""
        return self.a, self.b

    def other(self, side: Side) -> Side:
        """Returns the other side."""
        return self.b if side is self.a else self.a

    def say(self, *words: object) -> None:
        """Writes down what happens."""
        text = " ".join(map(str, words)).replace(f"{self.root}/", "")
        self.trace.append(f"{self.clock.monotonic_ms():.0f} {text}")

    async def pause(self, delay_ms: float) -> None:
        """Waits. Raises the error of a task that failed meanwhile."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.clock.call_later(delay_ms, lambda: None if done.done() else done.set_result(None))
        await done
        if self.error is not None:
            raise self.error

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a client's or a broker's work in a task of its own."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MachineGoneError):
            self.error = self.error or error

    def end_process(self, life: Life) -> None:
        """Ends the tasks of a crashed process, which has no effect any more."""
        self.loop.call_soon(life.stopped.set)

    def heal(self) -> None:
        """Ends the troubles of the link and of both sides."""
        network = self.network
        network.delays_ms, network.is_in_pieces, network.is_cut = (0,), False, False
        for side in self.both:
            side.thaw()
            side.is_full = False
        network.changed()

    # --- The disk ---

    def _side_of(self, path: str) -> Side | None:
        for side in self.both:
            if path.startswith(f"{side.disk.folder}/") or path == str(side.disk.folder):
                return side
        return None

    def _flushing(self, descriptor: int, flush: Callable[[CrashingDisk], None]) -> None:
        side = self._side_of(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        if side is not None:
            flush(side.disk)

    def _allocate(self, descriptor: int, offset: int, size: int) -> None:
        side = self._side_of(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        if side is not None and side.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real_allocate(descriptor, offset, size)

    def _used_ratio(self, folder: Path) -> float:
        side = self._side_of(str(folder))
        return NEARLY_FULL_RATIO if side is not None and side.is_full else USED_RATIO

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Runs the block's brokers on the two machines."""
        with (
            mock.patch("os.posix_fallocate", self._allocate),
            mock.patch("socket.socket", self.network.trial),
            patched(
                lambda fd: self._flushing(fd, lambda disk: disk._flush(fd)),
                lambda fd: self._flushing(fd, lambda disk: disk._flush_all(fd)),
                self._before_append,
                self._used_ratio,
                self.chance,
            ),
        ):
            yield

    def _before_append(self, call: DiskCall) -> None:
        side = self._side_of(call.path)
        if side is not None:
            side._moment("append")


def as_slave_of(master: Side, replication: Replication) -> Replication:
    """Returns the options of a slave."""
    return replace(replication, role=BrokerRole.SLAVE, broker_id=1, master=master.address)
