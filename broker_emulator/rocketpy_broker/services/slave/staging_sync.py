"""Copies of the master's completed staging files, on a slave.

A master that waits for slaves decides a batch after they have its files. A slave that is promoted
after the decision rolls the batch forward from its copies. The slave removes a copy after the
master has removed its file. It waits until its own log is on disk up to the end of the master's log
at that moment. Before that, its log may lack messages that only the copy has. Masters of RocketMQ
have no such files.
Source: docs/design/cluster.md section 4.6.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from pathlib import Path

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError, StagingFullError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.slave.errors import MasterRefusedError
from rocketpy_broker.services.slave.master import Connect, Master
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import NAME_DIGITS
from rocketpy_broker.store.staging.copy import StagedCopy
from rocketpy_proto.remoting.bodies.configs import StagedFileChange
from rocketpy_proto.remoting.headers.cluster import LACKING_MAX, StagedFilesRequest

logger = logging.getLogger(__name__)
PAUSE_MS = 500
RETRY_MS = 5_000
# A master that does not know the request is asked again after this time.
UNKNOWN_MS = 60_000
# More files than all jobs of a master have.
FILES_MAX = 1_000_000
REMOVED_AT_ONCE = 1_000


class StagingSync:
    """The task that copies staging files to one slave; `run` is its loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        connect: Connect,
        state: SlaveState,
        clock: Clock,
    ) -> None:
        self._store = store
        self._folder = store.staging.folder
        self._connect = connect
        self._state = state
        self._clock = clock
        self._throttle = LogThrottle(clock)
        self._id = str(config.replication.broker_id)
        self._run_id = ""
        self._position = 0
        self._is_whole = False
        # The copied files, and the files to be removed, each with the log end that it waits for.
        self._present: set[str] = set()
        self._leaving: dict[str, int] = {}
        # Files that could not be copied, and the time of the next attempt at them.
        self._lacking: dict[str, StagedFileChange] = {}
        self._retry_ms = 0.0

    async def run(self) -> None:
        """Copies the files until cancelled."""
        while True:
            while not self._state.is_connected:
                await sleep(self._clock, PAUSE_MS)
            address = self._state.master
            master = Master(address, self._connect(address))
            try:
                while self._has_master(address):
                    await self._sync(master)
            except (BrokerError, OSError) as error:
                self._log(str(error))
                await sleep(self._clock, RETRY_MS)
            finally:
                master.close()

    def _has_master(self, address: str) -> bool:
        return self._state.is_connected and self._state.master == address

    async def _sync(self, master: Master) -> None:
        """Takes in the next changes. Raises MasterLostError, MasterRefusedError, OSError."""
        begin_ms = self._clock.monotonic_ms()
        lacking = ",".join(self._lacking)
        report = StagedFilesRequest(self._id, self._run_id, self._position, lacking)
        answer = await master.staged_files(report)
        if answer is None:
            await sleep(self._clock, UNKNOWN_MS)
            return
        found, changes = answer[0], answer[1].changes
        if found.is_start:
            # An error below must not leave the new run with the old one's position.
            self._run_id, self._position, self._is_whole = found.run_id, 0, False
            for names in (self._present, self._leaving, self._lacking):
                names.clear()
        if self._lacking and self._retry_ms <= self._clock.monotonic_ms():
            self._retry_ms = self._clock.monotonic_ms() + RETRY_MS
            # Before the other changes: no more than LACKING_MAX files can be reported.
            changes = (*self._lacking.values(), *changes)
        for change in changes:
            await self._take(master, change, found.log_end)
        self._position = found.position
        if found.is_end and not self._is_whole:
            there = await asyncio.to_thread(_names, self._folder)
            gone = there - self._present - {*self._lacking}
            self._leaving.update(dict.fromkeys(gone, found.log_end))
            self._is_whole = True
        await self._remove_leaving()
        if found.is_end and not changes and self._clock.monotonic_ms() < begin_ms + PAUSE_MS:
            # The master did not hold the request, as after its start.
            await sleep(self._clock, PAUSE_MS)

    async def _take(self, master: Master, change: StagedFileChange, log_end: int) -> None:
        name = change.name
        if not (name.isascii() and name.isdecimal() and len(name) == NAME_DIGITS):
            raise MasterRefusedError(
                f"it names a staging file {name!r:.60}; expected are {NAME_DIGITS} digits"
            )
        if len(self._present) + len(self._leaving) > FILES_MAX:
            raise MasterRefusedError(f"it has more than {FILES_MAX} staging files")
        if change.is_removed:
            self._present.discard(name)
            self._lacking.pop(name, None)
            self._leaving[name] = log_end
            return
        try:
            copy = StagedCopy(self._folder / name, change.fingerprint)
            if not await asyncio.to_thread(copy.is_there):
                await self._copy(master, name, copy)
        except (StagingFullError, OSError) as error:
            # One file must not hold up the batches of all other writers.
            if name not in self._lacking and len(self._lacking) >= LACKING_MAX:
                raise
            self._lacking[name] = change
            self._log(f"{name} is not copied, and tried again later: {error}")
            return
        self._lacking.pop(name, None)
        self._leaving.pop(name, None)
        self._present.add(name)

    def _log(self, text: str) -> None:
        if self._throttle.may_log():
            logger.warning("staging files of master %s: %s", self._state.master, text)

    async def _copy(self, master: Master, name: str, copy: StagedCopy) -> None:
        """Copies a file that the master still has, and that is complete."""
        area = self._store.staging
        await asyncio.to_thread(copy.begin)
        try:
            while piece := await master.staged_piece(self._id, name, copy.bytes):
                if copy.bytes + len(piece) > area.bytes_max:
                    raise StagingFullError(copy.bytes, len(piece), area.bytes_max)
                await run_shielded(asyncio.to_thread(copy.add, piece))
            if piece is not None and not await run_shielded(asyncio.to_thread(copy.finish)):
                # After a restart the master also lists files that tasks may still write.
                self._log(f"{name} is not complete")
        finally:
            await run_shielded(asyncio.to_thread(copy.discard))

    async def _remove_leaving(self) -> None:
        flushed = self._store.flushed_end
        while True:
            # They are in the order of their log ends.
            first = itertools.islice(self._leaving.items(), REMOVED_AT_ONCE)
            ready = [name for name, log_end in first if log_end <= flushed]
            if not ready:
                return
            paths = [self._folder / name for name in ready]
            await asyncio.to_thread(durable.remove_files, paths)
            for name in ready:
                del self._leaving[name]


def _names(folder: Path) -> set[str]:
    """Returns the names of all files. Blocks. Raises OSError."""
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {each.name for each in entries if each.is_file(follow_symlinks=False)}
