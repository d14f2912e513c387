"""Findings of a store check, and the context of its parts.

A *fault* is an error: lost or changed bytes, or a file that does not belong to the store. A *note*
is information that the next start resolves, such as the torn tail of a crash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import Checksummed, Trust
from rocketpy_broker.store.recovery.plan import Traces
from rocketpy_broker.store.values import Damage
from rocketpy_proto.counts import counted

# The limit of listed findings per file; a broken file would have one for each of its entries.
FINDINGS_PER_FILE_MAX = 50


@dataclass(frozen=True, slots=True)
class Fault:
    """An error at byte `offset` of the file `path`."""

    path: Path
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Information about byte `offset` of the file `path`; not a fault."""

    path: Path
    offset: int
    text: str


Finding = Fault | Note


def finding(path: Path, offset: int, text: str, *, is_fault: bool) -> Finding:
    """Returns a fault or a note."""
    return Fault(path, offset, text) if is_fault else Note(path, offset, text)


@dataclass(slots=True)
class CheckContext:
    """The state of the store that all checks use. Offsets are physical ones.

    `log_end` and `damages` are known once the log has been read.
    """

    folder: Path
    sizes: StoreSizes
    traces: Traces
    trust: Trust
    log: CommitLog
    deleted: TopicMarks
    log_end: int = 0
    last_store_timestamp_ms: int = 0
    damages: list[Damage] = field(default_factory=list)
    _bounds: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def has_checksums(self) -> bool:
        """True if there are checksums of the log's present content."""
        return self.trust.checksums is not Checksummed.NONE

    @property
    def checksums_end(self) -> int:
        """The offset below which every record has a checksum.

        Later records were written by another broker, or before a crash.
        """
        return 0 if self.traces.abnormal else self.trust.flushed

    @property
    def manifest(self) -> Manifest | None:
        """The manifest, if it is of this log."""
        return self.traces.manifest if self.traces.ours else None

    def is_mended(self, physical_offset: int) -> bool:
        """True if the next start restores derived entries of the record at this offset."""
        completed = 0 if self.manifest is None else self.manifest.log_end
        return self.traces.abnormal and physical_offset >= completed

    def is_damaged(self, physical_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """True if an offset is within known damage, which gets no second finding."""
        # Damages are in log order, without overlaps: offsets between two bounds of one are inside.
        if len(self._bounds) != 2 * len(self.damages):
            bounds = [(damage.offset, damage.offset + damage.length) for damage in self.damages]
            self._bounds = np.array(bounds, np.int64).ravel()
        places = np.searchsorted(self._bounds, physical_offsets, "right")
        inside: NDArray[np.bool_] = places % 2 == 1
        return inside


def runs(wrong: NDArray[np.bool_]) -> Iterator[range]:
    """Yields the ranges of consecutive wrong entries."""
    edges = np.flatnonzero(np.diff(wrong.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        yield range(begin, end)


def numbered(name: str, run: range, first: int = 0) -> str:
    """Returns a text such as "unit 5" or "units 5 to 7", with numbers from `first` on."""
    begin, end = first + run.start, first + run.stop - 1
    return f"{name} {begin}" if begin == end else f"{name}s {begin} to {end}"


def limited(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yields the first findings of each file, and the number of unlisted ones."""
    counts: Counter[Path] = Counter()
    faulty: set[Path] = set()
    for found in findings:
        counts[found.path] += 1
        if counts[found.path] <= FINDINGS_PER_FILE_MAX:
            yield found
        elif isinstance(found, Fault):
            faulty.add(found.path)
    for path, count in counts.items():
        if count > FINDINGS_PER_FILE_MAX:
            more = counted(count - FINDINGS_PER_FILE_MAX, "more finding is", "more findings are")
            text = f"{more} not listed"
            yield finding(path, 0, text, is_fault=path in faulty)


Advance = Callable[[int], None]
