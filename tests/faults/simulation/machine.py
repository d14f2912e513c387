"""A machine: brokers on one disk, started, used, and stopped, killed or cut off.

Each life has an event loop of its own. Its end is drawn before: a clean stop, or a crash at the
n-th flush or append, or at some time. A broker may thus also crash while it starts, recovers or
stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from rocketpy_broker.broker import Broker, Ready
from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.config import BrokerConfig, TransactionTimes
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.config_files.saver import Saver, save_now
from rocketpy_broker.store.cleaner import CleanPolicy
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.delay_levels import DelayLevels
from tests.faults.histories.events import Calm
from tests.faults.histories.history import History
from tests.faults.simulation.disk import CrashingDisk
from tests.faults.simulation.loop import SimulatedLoop, VirtualClock
from tests.faults.simulation.patches import INDEX_ENTRIES, INDEX_SLOTS, NoServer, patched
from tests.support.store.disk_calls import DiskCall

T = TypeVar("T")
SEGMENT_BYTES = 16 << 10
LEVELS = "1s 5s 20s 1m 10m"
HOUR_MS = 3_600_000
DISK_USED, DISK_NEARLY_FULL = 0.5, 0.87


# Progress that may be older than the log, each group as a whole: it costs time only.
PROGRESS = (
    ("config/deliveryLog.json",),
    ("config/transactionLog.json",),
    ("config/consumerOffset.json",),
    ("config/delayOffset.json", "config/deliveryLog.json", "config/timercheck"),
)


class MachineGoneError(Exception):
    """An error of a call whose machine ended; the outcome of the call is unknown."""


class Moment(str, Enum):
    """Moments that crashes count."""

    FLUSH = "flush"
    APPEND = "append"
    SAVE = "save"
    TIME = "time"


@dataclass
class Crash:
    """The end of a life, at the `left`-th moment of a kind from its start, or at a time in ms."""

    moment: Moment
    left: int
    is_power_cut: bool


class Machine:
    """The disk, the clock, and the broker that runs."""

    def __init__(self, folder: Path, chance: random.Random, history: History) -> None:
        self._root = folder
        self.chance = chance
        self.history = history
        self.clock = VirtualClock()
        self.flush = chance.choice(list(FlushDiskType))
        self.is_slow = chance.random() < 0.15
        self.times = FlushTimes(
            flush_interval_ms=chance.choice([5_000, 30_000]),
            derived_interval_ms=chance.choice([10_000, 60_000]),
        )
        self.persist_interval_ms = chance.choice([10_000, 60_000])
        # How often tables are saved right after a delivery, as if their interval ended there.
        self._save_chance = chance.choice([0.0, 1.0, 1.0])
        self.disk_used = DISK_USED
        self._number = 0
        self.disk = CrashingDisk(folder / "0", lambda: self._moment(Moment.FLUSH))
        self.disk.folder.mkdir()
        self.is_gone = False
        self.crash_plan: Crash | None = None
        self._left: CrashingDisk | None = None
        self._durable_end = 0
        self._calm_since_ms: int | None = None
        self._wall_max_ms = 0
        # The due time of the last waiting message.
        self.due_ms_max = 0
        self.was_cleaned = False
        self.broker: Broker | None = None
        self._is_serving = False
        self.error: BaseException | None = None
        self.trace: list[str] = []
        self._earlier: list[dict[str, bytes]] = []
        # Called with the durable end of the log after a power cut.
        self.on_power_cut: list[Callable[[int], None]] = []
        self.on_end: list[Callable[[], None]] = []

    # --- The broker's machine ---

    def _config(self) -> BrokerConfig:
        return BrokerConfig(
            self.disk.folder,
            port=0,  # Nothing listens; the default may be another broker's.
            users_check_interval_ms=HOUR_MS,
            flush_disk_type=self.flush,
            commit_log_segment_bytes=SEGMENT_BYTES,
            consume_queue_file_bytes=2_000,
            index_slot_count=INDEX_SLOTS,
            index_entry_count_max=INDEX_ENTRIES,
            flush_times=self.times,
            persist_interval_ms=self.persist_interval_ms,
            clean_interval_ms=60_000,
            clean_policy=CleanPolicy(clean_file_forcibly_enable=True, files_per_pass_max=1),
            transactions=TransactionTimes(check_max=4),
            delay_levels=DelayLevels.parse(LEVELS),
        )

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """Runs the block's brokers on this machine."""
        with patched(
            self._flush,
            self._flush_all,
            self._before_append,
            lambda _: self.disk_used,
            self.chance,
        ):
            yield

    def _before_append(self, call: DiskCall) -> None:
        self._moment(Moment.APPEND)
        if not self._is_serving or (block := call.records) is None:
            return
        # A delivered message names the message that waited.
        is_awaited = (block.header["prepared_transaction_offset"] < 0).any()
        if is_awaited and self.chance.random() < self._save_chance:
            self.clock.call_later(self.chance.choice([0, 1, 3]), self._save)

    def _flush(self, descriptor: int) -> None:
        self._flushing(lambda: self.disk._flush(descriptor))

    def _flush_all(self, descriptor: int) -> None:
        self._flushing(lambda: self.disk._flush_all(descriptor))

    def _flushing(self, flush: Callable[[], None]) -> None:
        if not self.is_gone:
            flush()
            if self.disk.has_failed:
                self.trouble()

    def _save(self) -> None:
        """Saves the tables as their intervals do, faster than any work in threads."""
        if self.broker is None or not self._is_serving:
            return
        for saver in self.broker._lifecycle.tables:
            assert isinstance(saver, Saver)
            if not saver._is_saving:
                with contextlib.suppress(OSError):
                    save_now(saver._table)
        self._moment(Moment.SAVE)

    # --- Time ---

    @property
    def now_ms(self) -> int:
        """The wall time."""
        return self.clock.now_ms()

    @property
    def log_end(self) -> int:
        """The end of the log."""
        assert self.broker is not None
        return self.broker.store.positions().log_end

    def jump(self, delta_ms: int) -> None:
        """Sets the wall clock."""
        self.trouble()
        self._wall_max_ms = max(self._wall_max_ms, self.now_ms)
        self.clock.jump(delta_ms)
        self.calm()

    @property
    def is_ahead(self) -> bool:
        """True if no message can have been stored by a clock that was ahead of this one."""
        return self.now_ms > self._wall_max_ms

    def calm(self) -> None:
        """Starts a time without trouble."""
        if not self.disk.has_failed:
            self._calm_since_ms = self.now_ms

    def trouble(self) -> None:
        """Ends a time without trouble."""
        since_ms, self._calm_since_ms = self._calm_since_ms, None
        if since_ms is not None and since_ms > self._wall_max_ms:
            self.history.events.append(Calm(since_ms, self.now_ms))

    def say(self, *words: object) -> None:
        """Writes down what happens."""
        head = f"{self._number}@{self.clock.monotonic_ms():.0f}"
        self.trace.append(" ".join([head, *map(str, words)]))

    # --- Crashes ---

    def _moment(self, moment: Moment) -> None:
        crash = self.crash_plan
        if crash is not None and crash.moment is moment and not self.is_gone:
            crash.left -= 1
            if crash.left <= 0:
                self._crash(crash)

    def _crash(self, crash: Crash) -> None:
        """Copies the present disk; the old machine continues unheard to the end of its slot."""
        self.say("crash", crash)
        self.trouble()
        self.is_gone, self.crash_plan = True, None
        self._left = self.disk.copied(self._root / str(self._number + 1))
        if self.broker is not None and self.broker.store.flushed_end:
            self._durable_end = self.broker.store.flushed_end
        if crash.is_power_cut:
            self._left.cut(self.chance)
            if self.flush is FlushDiskType.ASYNC_FLUSH:
                self.history.only_durable_is_promised(self._durable_end)
                for listener in self.on_power_cut:
                    listener(self._durable_end)
        self.loop.halt()

    # --- Lives ---

    def live(self, use: Callable[[BrokerServices], Awaitable[None]]) -> None:
        """Starts a broker, lets clients use it, and ends it. Raises the errors of its life."""
        self.loop = SimulatedLoop(self.clock, self.chance, is_slow=self.is_slow)
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.is_gone, self.disk_used = False, DISK_USED
        self.disk.has_failed = False
        try:
            self.loop.live(self._life(use))
            if self.error is not None:
                raise self.error
        except (OSError, BrokerError) as error:
            if not (self.disk.has_failed or self.is_gone):
                raise
            self.say("ended by", error)
        finally:
            self._end()
        self._number += 1

    def _end(self) -> None:
        if self.error is None and not self.is_gone:
            self.trouble()
        self.is_gone, self._is_serving = True, False
        for listener in self.on_end:
            listener()
        self.loop.tear_down()
        if self.broker is not None:
            self.broker.store._release()
        self.broker = None
        if self._left is not None:
            shutil.rmtree(self.disk.folder)
            self.disk, self._left = self._left, None
        self._perhaps_put_back()

    def _perhaps_put_back(self) -> None:
        """Restores files of progress from the end of an earlier life, as an operator may."""
        if self._earlier and self.chance.random() < 0.15:
            names = self.chance.choice(PROGRESS)
            earlier = self.chance.choice(self._earlier)
            self.say("puts back", names)
            self.disk.put_back({name: earlier[name] for name in names if name in earlier})
        every = sorted({name for names in PROGRESS for name in names})
        self._earlier.append(self.disk.texts(every))

    async def _life(self, use: Callable[[BrokerServices], Awaitable[None]]) -> None:
        self.broker = Broker(self._config(), self.clock, NoServer)
        stopped = asyncio.Event()
        ready: asyncio.Future[Ready] = self.loop.create_future()
        serving = self.loop.create_task(self.broker.serve_until(stopped, ready))
        crash = self.crash_plan
        if crash is not None and crash.moment is Moment.TIME:
            self.clock.call_later(crash.left, lambda: self._crash(crash))
        either: list[asyncio.Future[Any]] = [serving, ready]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        recovery = ready.result().recovery
        self.say("ready", str(recovery).replace(f"{self._root}/", ""))
        assert not recovery.damages, recovery.damages
        self.calm()
        self._is_serving = True
        await use(self.broker.services)
        self._is_serving = False
        self.trouble()
        self.say("stops")
        stopped.set()
        await serving
        for task in [*self.tasks]:
            task.cancel()
        if self.tasks:
            await asyncio.wait([*self.tasks])
        self.say("stopped")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a client's call in a task of its own."""
        task = self.loop.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MachineGoneError) and not self.is_gone:
            self.error = error
            self.loop.halt()

    async def call(self, work: Awaitable[T]) -> T:
        """Returns the answer to a client. Raises MachineGoneError if the machine has ended."""
        try:
            return await work
        finally:
            if self.is_gone:
                raise MachineGoneError
