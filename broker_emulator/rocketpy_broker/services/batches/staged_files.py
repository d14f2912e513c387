"""Completed staging files, for slaves that copy them.

With SYNC_MASTER a decision waits until enough slaves have copies of its files. A slave that is
promoted after the decision then rolls the batch forward from its copies. A slave requests changes
in their order. Each request reports that the slave has the files of all earlier changes, except the
files that it names. With `in_sync_replicas` a decision waits for that number of slaves in any case.
Otherwise it waits only for slaves that sent a request lately. Slaves of RocketMQ copy no files.
Changes are in memory: a restart begins a new run. A slave that missed forgotten removals begins
again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rocketpy_broker.config import SLAVES_MAX
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.store.staging.area import StagedAttempt

# The longest time for which the request of a slave is held.
HELD_MS_MAX = 5_000
# A slave without a request for longer does not count: no decision waits for it.
SILENT_MS_MAX = 30_000
CHANGES_A_PAGE = 1_000
# Numbers that one page looks at: most changes of a long list have gone.
NUMBERS_A_PAGE = 10_000
# Removals that are remembered.
REMOVED_MAX = 50_000
NAMES_A_SLOT = 5_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that was completed, or removed if `is_removed`."""

    name: str
    fingerprint: int
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes of one run, and the position after them; `is_end` if there are no more.

    With `is_start` they are the first ones, and the slave forgets all earlier ones.
    """

    run_id: str
    changes: list[FileChange]
    position: int
    is_start: bool
    is_end: bool


@dataclass(frozen=True, slots=True)
class CopyReport:
    """A slave's report: it has the files of all changes up to `position` except `lacking`."""

    slave_id: str
    run_id: str = ""
    position: int = 0
    lacking: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Copier:
    """A slave's last report, its time, and the last removal forgotten before its first report."""

    position: int
    lacking: frozenset[str]
    active_ms: float
    forgotten: int


class StagedFiles:
    """The completed files of one broker, and the positions of its slaves."""

    def __init__(self, slaves: SlaveTable, clock: Clock) -> None:
        self._slaves = slaves
        self._clock = clock
        self._run_id = secrets.token_hex(8)
        # Changes by number, counted from 1: a file has its last one only.
        self._changes: dict[int, FileChange] = {}
        self._end = 0
        self._present: dict[str, int] = {}
        # Files that were sealed when they were added: after a restart some are not.
        self._sealed: set[str] = set()
        # Numbers of removals, and of the last one that is forgotten.
        self._removals: deque[int] = deque()
        self._forgotten = 0
        self._copiers: dict[str, _Copier] = {}
        # Held requests by slave, and decisions that wait for reports.
        self._held: dict[str, asyncio.Future[None]] = {}
        self._deciding: set[asyncio.Future[None]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Ends all waits."""
        self._is_stopped = True
        for each in (*self._held.values(), *self._deciding):
            resolve(each)

    @property
    def is_waited_for(self) -> bool:
        """True if decisions wait for slaves."""
        return self._slaves.is_waited_for

    # --- Files ---

    def completed(self, staged: StagedAttempt) -> None:
        """Adds a completed file, if decisions wait for slaves."""
        if self.is_waited_for:
            name = staged.file.path.name
            self._changes.pop(self._present.get(name, 0), None)
            self._add(FileChange(name, staged.fingerprint))
            self._present[name] = self._end
            if staged.is_sealed:
                self._sealed.add(name)

    def removed(self, staged: StagedAttempt) -> None:
        """Removes a file if it was added."""
        name = staged.file.path.name
        number = self._present.pop(name, None)
        if number is None:
            return
        self._sealed.discard(name)
        self._add(replace(self._changes.pop(number), is_removed=True))
        self._removals.append(self._end)
        if len(self._removals) > REMOVED_MAX:
            self._forgotten = self._removals.popleft()
            del self._changes[self._forgotten]

    def _add(self, change: FileChange) -> None:
        self._end += 1
        self._changes[self._end] = change
        for each in self._held.values():
            resolve(each)

    def has(self, name: str) -> bool:
        """Returns True for a file that was added, and not removed."""
        return name in self._present

    # --- Slaves ---

    async def changes(self, report: CopyReport) -> FileChanges:
        """Returns the changes after a slave's position; holds the request while there are none.

        A newer request of the slave ends the wait, and so does HELD_MS_MAX.
        """
        is_start = not self._is_known(report)
        self._update_copier(report)
        if not is_start and report.position == self._end and not self._is_stopped:
            await self._next_change(report.slave_id)
            is_start = not self._is_known(report)
        first = next(iter(self._changes), self._end + 1) if is_start else report.position + 1
        end = first - 1
        changes: list[FileChange] = []
        while end < min(self._end, first + NUMBERS_A_PAGE) and len(changes) < CHANGES_A_PAGE:
            end += 1
            if (change := self._changes.get(end)) is not None:
                changes.append(change)
        return FileChanges(self._run_id, changes, end, is_start, is_end=end == self._end)

    def _is_known(self, report: CopyReport) -> bool:
        """Returns True if the slave has seen all removals that were forgotten since it began."""
        copier = self._copiers.get(report.slave_id)
        if copier is None or report.run_id != self._run_id:
            return False
        seen = max(report.position, copier.forgotten)
        return self._forgotten <= seen and 0 <= report.position <= self._end

    def _update_copier(self, report: CopyReport) -> None:
        now_ms = self._clock.monotonic_ms()
        for known in [*self._copiers]:
            if self._copiers[known].active_ms < now_ms - SILENT_MS_MAX:
                del self._copiers[known]
        if self._is_known(report):
            copier = self._copiers[report.slave_id]
            copier.position, copier.lacking = report.position, report.lacking
            copier.active_ms = now_ms
        elif report.slave_id in self._copiers or len(self._copiers) < SLAVES_MAX:
            copier = _Copier(0, report.lacking, now_ms, self._forgotten)
            self._copiers[report.slave_id] = copier
        for each in self._deciding:
            resolve(each)

    def note_activity(self, slave_id: str) -> None:
        """Notes that a slave is at work: the copy of a large file takes a while."""
        copier = self._copiers.get(slave_id)
        if copier is not None:
            copier.active_ms = self._clock.monotonic_ms()

    async def _next_change(self, slave_id: str) -> None:
        earlier = self._held.get(slave_id)
        if earlier is not None:
            resolve(earlier)
        held = self._held[slave_id] = asyncio.get_running_loop().create_future()
        try:
            await self._within(held, HELD_MS_MAX)
        finally:
            if self._held.get(slave_id) is held:
                del self._held[slave_id]

    # --- Decisions ---

    async def copied(self, attempts: Iterable[StagedAttempt], wait_ms_max: int) -> bool:
        """Waits until enough slaves have the files; returns False after `wait_ms_max`.

        All attempts have ended.
        """
        if not self.is_waited_for:
            return True
        reached, names = 0, set()
        for number, each in enumerate(attempts):
            if number % NAMES_A_SLOT == 0:
                await take_slot()
            name = each.file.path.name
            if name not in self._sealed:
                # The call that ended it may have been cancelled, or came before a restart.
                self.completed(each)
            names.add(name)
            reached = max(reached, self._present.get(name, 0))
        end_ms = self._clock.monotonic_ms() + wait_ms_max
        while names and not self._are_copied(names, reached):
            left_ms = end_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or self._is_stopped:
                return False
            report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._deciding.add(report)
            try:
                await self._within(report, left_ms)
            finally:
                self._deciding.discard(report)
        return True

    def _are_copied(self, names: set[str], reached: int) -> bool:
        since_ms = self._clock.monotonic_ms() - SILENT_MS_MAX
        copiers = [each for each in self._copiers.values() if each.active_ms >= since_ms]
        needed = self._slaves.needed_count
        if self._slaves.may_be_missing:
            needed = min(needed, len(copiers))
        having = [
            each for each in copiers if each.position >= reached and each.lacking.isdisjoint(names)
        ]
        return len(having) >= needed

    async def _within(self, event: asyncio.Future[None], wait_ms_max: float) -> None:
        timer = self._clock.call_later(wait_ms_max, lambda: resolve(event))
        try:
            await event
        finally:
            timer.cancel()
