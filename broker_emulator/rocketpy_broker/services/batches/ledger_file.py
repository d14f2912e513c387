"""The ledger's file: `config/batchLedger.journal`.

Maps: a writer's id to its last decided batch. It also holds the offset in the batches queue before
which every decision is carried out. A line: CRC-32 of the JSON text as 8 hexadecimal digits, a
space, JSON, a line feed. A save adds a line for each changed entry, then a line with the offset.
The last line of a writer counts. Earlier ones are dead: with more dead lines than live ones the
file is replaced.

A crash during a save leaves a torn tail, which the next start skips and the next save cuts. The
tail's entries are in the log, from the file's last offset on. A crash during a replacement leaves
the old or the new file. If lines before the tail are damaged, a copy is kept as `<name>.broken`,
and the offset before them counts. The start then reads the missing entries from the log, as far as
cleaning has left them. RocketMQ has no such file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.services.config_files.json_fields import as_long
from rocketpy_broker.store.files import durable
from rocketpy_proto.counts import counted
from rocketpy_proto.record.crc import body_crc

logger = logging.getLogger(__name__)
_CRC_DIGITS = 8
WRITER_ID, BATCH_ID, TIMESTAMP = "writerId", "batchId", "timestamp"
RECORD_COUNT, STORED_COUNT, IS_SINGLE = "recordCount", "storedCount", "isSingle"
NEXT_OFFSET, JOB_TOKEN = "nextOffset", "jobToken"
_WAY_OUT = (
    "move it away: the start then reads the last batches of the writers from the log, as far as "
    "cleaning has left them"
)
# Fewer dead lines than this do not replace a file.
DEAD_LINES = 1_000


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A writer's last decided batch.

    `timestamp_ms` is the wall time of the decision. `record_count` is the number of its messages,
    `stored_count` the number that is stored. The batch is incomplete if `stored_count` is smaller.
    A writer that `is_single` writes one batch and never returns. `job_token` names the job that
    committed it.
    """

    batch_id: int
    timestamp_ms: int
    record_count: int = 0
    stored_count: int = 0
    is_single: bool = False
    job_token: int = 0

    def to_json(self, writer_id: str) -> dict[str, object]:
        """Returns the line of a writer."""
        line: dict[str, object] = {
            WRITER_ID: writer_id,
            BATCH_ID: self.batch_id,
            TIMESTAMP: self.timestamp_ms,
            RECORD_COUNT: self.record_count,
            STORED_COUNT: self.stored_count,
            JOB_TOKEN: self.job_token,
        }
        return {**line, IS_SINGLE: True} if self.is_single else line

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> LedgerEntry:
        """Returns the entry of a line. Raises KeyError, ValueError."""
        return cls(
            as_long(line[BATCH_ID]),
            as_long(line[TIMESTAMP]),
            as_long(line[RECORD_COUNT]),
            as_long(line[STORED_COUNT]),
            bool(line.get(IS_SINGLE, False)),
            as_long(line[JOB_TOKEN]),
        )


class LedgerFile:
    """The file and its content. After `load` only saves change it, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "batchLedger.journal"
        self.entries: dict[str, LedgerEntry] = {}
        self.next_offset = 0
        # Bytes and lines before a torn tail.
        self._end = 0
        self._line_count = 0
        self.must_replace = True

    @classmethod
    def check(cls, data: bytes) -> None:
        """Raises ValueError for a content that `load` would refuse."""
        file = cls(Path())
        try:
            file._take(data.splitlines(keepends=True))
        except (LookupError, TypeError) as error:
            raise ValueError(f"a line of the ledger has wrong fields: {error}") from error
        if not (file._line_count and isinstance(file.next_offset, int)):
            raise ValueError("no line of the ledger can be read")

    def load(self) -> None:
        """Reads the file, if it exists. Blocks.

        Raises ConfigFileError if the file or all its lines cannot be read. Raises OSError if the
        copy of a damaged file cannot be written.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigFileError(self._path, str(error), _WAY_OUT) from error
        is_damaged = self._take(data.splitlines(keepends=True))
        if data and not self._line_count:
            raise ConfigFileError(self._path, "no line has the right checksum", _WAY_OUT)
        if self._end < len(data):
            left = len(data) - self._end
            logger.warning("%s: dropped %s of a torn tail", self._path, counted(left, "byte"))
        if is_damaged:
            broken = self._path.with_name(self._path.name + ".broken")
            durable.replace_bytes(broken, data)
            logger.critical("%s has damaged lines; a copy is kept as %s", self._path, broken.name)
        self.must_replace = is_damaged

    def _take(self, lines: list[bytes]) -> bool:
        """Takes in the readable lines; returns True if some follow a damaged one."""
        is_sound, is_damaged = True, False
        position = 0
        for encoded in lines:
            position += len(encoded)
            line = _decoded(encoded)
            if line is None:
                is_sound = False
                continue
            is_damaged |= not is_sound
            self._end = position
            self._line_count += 1
            if WRITER_ID in line:
                self.entries[line[WRITER_ID]] = LedgerEntry.from_json(line)
            elif NEXT_OFFSET in line and is_sound:
                self.next_offset = line[NEXT_OFFSET]
        return is_damaged

    def is_too_long(self, forgotten_count: int) -> bool:
        """True if the file must be replaced once `forgotten_count` of its writers are forgotten."""
        alive = len(self.entries) - forgotten_count
        return self._line_count - alive > max(alive, DEAD_LINES)

    def save(
        self, entries: Mapping[str, LedgerEntry], next_offset: int, forgotten: Iterable[str]
    ) -> None:
        """Forgets writers, takes in entries and the offset, and saves them. Blocks.

        Raises OSError; the next call then saves the same changes.
        """
        for writer_id in forgotten:
            self.entries.pop(writer_id, None)
        self.entries.update(entries)
        self.next_offset = next_offset
        must_replace = self.must_replace or self.is_too_long(0)
        # If this fails, the part that reached the disk is unknown.
        self.must_replace = True
        if must_replace:
            self._replace()
        else:
            data = b"".join(_lines(entries, next_offset))
            durable.append_bytes(self._path, data, self._end)
            self._end += len(data)
            self._line_count += len(entries) + 1
        self.must_replace = False

    def _replace(self) -> None:
        end = 0
        with durable.replacing(self._path) as file:
            for line in _lines(self.entries, self.next_offset):
                end += file.write(line)
        self._end = end
        self._line_count = len(self.entries) + 1


def _lines(entries: Mapping[str, LedgerEntry], next_offset: int) -> Iterator[bytes]:
    for writer_id, entry in entries.items():
        yield _encoded(entry.to_json(writer_id))
    yield _encoded({NEXT_OFFSET: next_offset})


def _encoded(line: Mapping[str, object]) -> bytes:
    text = msgspec.json.encode(line)
    return b"%08x %b\n" % (body_crc(text), text)


def _decoded(line: bytes) -> dict[str, Any] | None:
    """Returns the object of a line; None if the line is torn or damaged."""
    digits, text = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or digits != b"%08x" % body_crc(text):
        return None
    return msgspec.json.decode(text, type=dict[str, Any])
