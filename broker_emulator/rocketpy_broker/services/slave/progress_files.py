"""Progress files of a master's services, on a slave.

The master writes a file at some end of its log. The file is valid for each copy of the log that has
reached that end. So a slave copies the master's files. A promotion then reads only the newest part
of the log, as a start after a crash does. Without a file it reads the whole log to find what has
been delivered, ended and committed.

A store that was a master's has files of its own. They stay valid until its log is cut: `rocketpy
store align` resets them. RocketMQ's masters leave no marks of deliveries in the log, so a slave of
theirs has no such files.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketpy_broker.runtime.tasks import run_shielded
from rocketpy_broker.services.batches.ledger_file import LedgerFile
from rocketpy_broker.services.config_files.json_fields import as_object
from rocketpy_broker.services.delay.progress import decode_log_offset
from rocketpy_broker.services.slave.master import Master
from rocketpy_broker.services.transactions.progress import decode_mark
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.files.timer_checkpoint import FILE_BYTES
from rocketpy_proto.remoting.json_text import parse_json

DELIVERIES, TRANSACTIONS = "deliveryLog.json", "transactionLog.json"
LEDGER, TIMER = "batchLedger.journal", "timercheck"
FILES = (DELIVERIES, TRANSACTIONS, LEDGER)
# A start reads deliveries from this log offset on; without the file, it expects none.
FROM_THE_BEGIN = json.dumps({"logOffset": 0}).encode()


def begin_progress(config_folder: Path) -> None:
    """Resets the progress of a slave that has none. Blocks. Raises OSError."""
    if not (config_folder / DELIVERIES).exists():
        reset_progress(config_folder)


def reset_progress(config_folder: Path) -> None:
    """Removes the progress; a promotion then reads the whole log. Blocks. Raises OSError."""
    for name in (TIMER, *FILES):
        _remove(config_folder / name)
        _remove(config_folder / f"{name}.bak")
    durable.replace_bytes(config_folder / DELIVERIES, FROM_THE_BEGIN)


def _remove(path: Path) -> None:
    if path.exists():
        durable.remove_file(path)


class ProgressFiles:
    """A slave's copies of the progress files."""

    def __init__(self, config_folder: Path) -> None:
        self._folder = config_folder
        # Versions of the copies; the master sends only a file of another version.
        self._versions: dict[str, str] = {}

    async def changed(self, master: Master) -> dict[str, tuple[str, bytes]]:
        """Returns version and content of the files that have changed; b"" for one that is gone.

        The timer's position in deliveryLog.json belongs to one content of timercheck. So timercheck
        is read before and after. Raises MasterLostError, MasterRefusedError.
        """
        while True:
            timer = await self._changed(master, TIMER)
            found = [await self._changed(master, name) for name in FILES]
            if await self._changed(master, TIMER) == timer:
                return {
                    name: each
                    for name, each in zip((TIMER, *FILES), (timer, *found), strict=True)
                    if each
                }

    async def _changed(self, master: Master, name: str) -> tuple[str, bytes] | None:
        known = self._versions.get(name, "")
        version, content = await master.progress_file(name, known)
        return None if version == known else (version, content)

    async def save(self, files: Mapping[str, tuple[str, bytes]], log_end: int) -> None:
        """Replaces the copies; the slave's log is on disk up to `log_end`.

        Raises ValueError for a file that no broker has written, and OSError.
        """
        for name, (version, content) in files.items():
            work = asyncio.to_thread(self._save, name, content, log_end)
            # A promotion must not read the files while a thread still replaces them.
            await run_shielded(work)
            self._versions[name] = version

    def _save(self, name: str, content: bytes, log_end: int) -> None:
        path = self._folder / name
        if content:
            _CHECKS[name](content, log_end)
            # No backup stays, because it could be older than the delay offsets.
            _remove(path.with_name(f"{name}.bak"))
            durable.replace_bytes(path, content)
        elif name == DELIVERIES:
            durable.replace_bytes(path, FROM_THE_BEGIN)
        else:
            _remove(path)


def _check_mark(decode: Callable[[Mapping[str, object]], int]) -> Callable[[bytes, int], None]:
    def check(content: bytes, log_end: int) -> None:
        mark = decode(as_object(parse_json(content, "it is no JSON")))
        if not 0 <= mark <= log_end:
            raise ValueError(f"its progress is at {mark} of a log that ends at {log_end}")

    return check


def _check_timer(content: bytes, _: int) -> None:
    if len(content) != FILE_BYTES:
        raise ValueError(f"its {TIMER} has {len(content)} bytes instead of {FILE_BYTES}")


_CHECKS: Mapping[str, Callable[[bytes, int], None]] = {
    TIMER: _check_timer,
    DELIVERIES: _check_mark(decode_log_offset),
    TRANSACTIONS: _check_mark(decode_mark),
    LEDGER: lambda content, _: LedgerFile.check(content),
}
