"""The ledger's file: `config/batchLedger.journal`.

Maps: a writer's id to its last decided batch. It also holds the offset in the batches queue before
which every decision is carried out. A save adds a line for each changed entry, then a line with the
offset. So lines that a crash tears off are in the log, from the file's last offset on.

The last line of a writer counts. The file is replaced when it has more dead lines than live ones.
If lines are damaged, the offset before them counts. The start then reads the missing entries from
the log, as far as cleaning has left them.

Earlier versions kept `config/batchLedger.json`, which is read once, and then removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.journal import Journal, JournalContent
from rocketpy_broker.services.config_files.json_fields import as_long, as_object
from rocketpy_broker.store.files import durable

WRITER_ID, BATCH_ID, TIMESTAMP = "writerId", "batchId", "timestamp"
RECORD_COUNT, STORED_COUNT, IS_SINGLE = "recordCount", "storedCount", "isSingle"
NEXT_OFFSET, JOB_TOKEN = "nextOffset", "jobToken"
WRITERS = "writers"
# Fewer dead lines than this do not replace a file.
DEAD_LINES = 1_000


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A writer's last decided batch.

    `timestamp_ms` is the wall time of the decision. `record_count` is the number of its messages,
    `stored_count` the number that is stored. The batch is incomplete if `stored_count` is smaller.
    A writer that `is_single` writes one batch and never returns. `job_token` names the job that
    committed it; 0 if unknown.
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
        """Returns the entry of a line, or of a file of an earlier version. Raises ValueError."""
        return cls(
            as_long(line[BATCH_ID]),
            as_long(line[TIMESTAMP]),
            as_long(line.get(RECORD_COUNT, 0)),
            as_long(line.get(STORED_COUNT, 0)),
            bool(line.get(IS_SINGLE, False)),
            as_long(line.get(JOB_TOKEN, 0)),
        )


class LedgerFile:
    """The file and its content. After `load` only saves change it, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / "batchLedger.journal")
        self._old_path = folder / "batchLedger.json"
        self.entries: dict[str, LedgerEntry] = {}
        self.next_offset = 0
        self._line_count = 0
        self.must_replace = True

    def load(self) -> None:
        """Reads the file, or that of an earlier version. Raises ConfigFileError, OSError."""
        content = self._journal.load()
        if content is not None:
            self._take(content)
        else:
            old = ConfigFile(self._old_path, (WRITERS, NEXT_OFFSET)).load(_of_old_file)
            if old is not None:
                self._take(old)
                self._replace()
        for path in (self._old_path, self._old_path.with_name(self._old_path.name + ".bak")):
            if path.exists():
                durable.remove_file(path)

    def _take(self, content: JournalContent) -> None:
        for number, line in enumerate(content.lines):
            if WRITER_ID in line:
                self.entries[line[WRITER_ID]] = LedgerEntry.from_json(line)
            elif NEXT_OFFSET in line and number < content.sound_count:
                self.next_offset = line[NEXT_OFFSET]
        self._line_count = len(content.lines)
        self.must_replace = content.is_damaged

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
        if self.must_replace or self.is_too_long(0):
            self._replace()
            return
        # If this fails, the part that reached the disk is unknown.
        self.must_replace = True
        self._journal.append(_lines(entries, next_offset))
        self.must_replace = False
        self._line_count += len(entries) + 1

    def _replace(self) -> None:
        self.must_replace = True
        self._journal.replace(_lines(self.entries, self.next_offset))
        self.must_replace = False
        self._line_count = len(self.entries) + 1


def _lines(entries: Mapping[str, LedgerEntry], next_offset: int) -> Iterator[dict[str, object]]:
    lines = (entry.to_json(writer_id) for writer_id, entry in entries.items())
    return itertools.chain(lines, [{NEXT_OFFSET: next_offset}])


def _of_old_file(content: Mapping[str, Any]) -> JournalContent:
    """Returns the content of batchLedger.json as lines. Raises ValueError."""
    lines: list[dict[str, Any]] = []
    for writer_id, entry in as_object(content.get(WRITERS)).items():
        if BATCH_ID in as_object(entry) and TIMESTAMP in entry:
            lines.append(LedgerEntry.from_json(entry).to_json(writer_id))
    lines.append({NEXT_OFFSET: as_long(content.get(NEXT_OFFSET, 0))})
    return JournalContent(lines, len(lines))
