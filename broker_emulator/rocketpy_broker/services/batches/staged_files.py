"""Completed staging files, for slaves that copy them before their batch is decided.

With SYNC_MASTER a decision waits until enough slaves have the files that it names. A slave that is
promoted after the decision then rolls the batch forward from its copies. A slave asks for changes
in their order, and each request reports that it has all changes before. Slaves of RocketMQ copy no
files, so no decision waits for them. State is in memory: after a restart, or when the list has many
removed files, a new run begins at position 0.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.config import SLAVES_MAX
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.store.staging.area import StagedAttempt

# The longest time for which the request of a slave is held.
HELD_MS_MAX = 5_000
# A slave that was not heard of for longer copies nothing.
SILENT_MS_MAX = 30_000
CHANGES_A_PAGE = 1_000
# Changes of removed files before a new run begins.
REMOVED_MAX = 20_000


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that was completed, or removed if `is_removed`."""

    path: Path
    task_token: int
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes of one run, and the position after them; `is_end` if there are no more."""

    run_id: str
    changes: list[FileChange]
    position: int
    is_end: bool


@dataclass(slots=True)
class _Copier:
    """A slave's position, and the time of its last request."""

    run_id: str
    position: int
    heard_ms: float


class StagedFiles:
    """The completed files of one broker, and the positions of its slaves."""

    def __init__(self, slaves: SlaveTable, clock: Clock) -> None:
        self._slaves = slaves
        self._clock = clock
        self._run_id = secrets.token_hex(8)
        self._changes: list[FileChange] = []
        # Files by name, with the position after their completion.
        self._present: dict[str, int] = {}
        self._copiers: dict[str, _Copier] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_stopped = False

    def stop(self) -> None:
        """Ends all waits."""
        self._is_stopped = True
        self._wake()

    # --- Files ---

    def completed(self, staged: StagedAttempt) -> None:
        """Adds a file."""
        if self._slaves.is_waited_for:
            path = staged.file.path
            self._add(FileChange(path, staged.attempt.token))
            self._present[path.name] = len(self._changes)

    def removed(self, staged: StagedAttempt) -> None:
        """Removes a file if it was added."""
        path = staged.file.path
        if self._present.pop(path.name, None) is None:
            return
        self._add(FileChange(path, staged.attempt.token, is_removed=True))
        if len(self._changes) > 2 * len(self._present) + REMOVED_MAX:
            kept = [self._changes[position - 1] for position in self._present.values()]
            self._run_id, self._changes = secrets.token_hex(8), kept
            self._present = {each.path.name: place for place, each in enumerate(kept, 1)}

    def _add(self, change: FileChange) -> None:
        self._changes.append(change)
        self._wake()

    def path(self, name: str) -> Path | None:
        """Returns the path of a file; None for one that was not added, or was removed."""
        position = self._present.get(name)
        return None if position is None else self._changes[position - 1].path

    # --- Slaves ---

    async def changes(self, slave_id: str, run_id: str, position: int) -> FileChanges:
        """Returns the changes after a position, or after HELD_MS_MAX none.

        The slave has the files of all changes before it.
        """
        self._heard(slave_id, run_id, position)
        end_ms = self._clock.monotonic_ms() + HELD_MS_MAX
        while run_id == self._run_id and position >= len(self._changes) and not self._is_stopped:
            left_ms = end_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            await self._next_event(left_ms)
        self._heard(slave_id, run_id, position)
        begin = position if run_id == self._run_id else 0
        page = self._changes[begin : begin + CHANGES_A_PAGE]
        # A file that has gone since needs no copy.
        changes = [
            each
            for place, each in enumerate(page, begin + 1)
            if each.is_removed or self._present.get(each.path.name) == place
        ]
        end = begin + len(page)
        return FileChanges(self._run_id, changes, end, is_end=end == len(self._changes))

    def _heard(self, slave_id: str, run_id: str, position: int) -> None:
        now_ms = self._clock.monotonic_ms()
        for known in [*self._copiers]:
            if self._copiers[known].heard_ms < now_ms - SILENT_MS_MAX:
                del self._copiers[known]
        if slave_id in self._copiers or len(self._copiers) < SLAVES_MAX:
            self._copiers[slave_id] = _Copier(run_id, position, now_ms)
            self._wake()

    async def copied(self, attempts: Iterable[StagedAttempt], wait_ms_max: int) -> bool:
        """Waits until enough slaves have the files; returns False if they have not in time."""
        names = [each.file.path.name for each in attempts]
        end_ms = self._clock.monotonic_ms() + wait_ms_max
        while not self._are_copied(names):
            left_ms = end_ms - self._clock.monotonic_ms()
            if left_ms <= 0 or self._is_stopped:
                return False
            await self._next_event(left_ms)
        return True

    def _are_copied(self, names: Iterable[str]) -> bool:
        since_ms = self._clock.monotonic_ms() - SILENT_MS_MAX
        copiers = [each for each in self._copiers.values() if each.heard_ms >= since_ms]
        needed = min(self._slaves.needed_count, len(copiers))
        if needed == 0:
            return True
        reached = max((self._present.get(name, 0) for name in names), default=0)
        having = [
            each for each in copiers if each.run_id == self._run_id and each.position >= reached
        ]
        return len(having) >= needed

    # --- Waits ---

    async def _next_event(self, wait_ms_max: float) -> None:
        """Waits for the next change or report, or for the time."""
        if self._is_stopped:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        timer = self._clock.call_later(wait_ms_max, lambda: resolve(future))
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def _wake(self) -> None:
        for each in self._waiting:
            resolve(each)
