"""Offline check of a whole store against its log.

The check changes no file. The log is read once; its records are compared with their units, index
entries and checksums on the way. A check takes about two seconds per million records. The remains
of a crash that the next start corrects are reported as notes. `rocketpy store check` uses this
module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.check import files
from rocketpy_broker.store.check.faults import (
    Advance,
    CheckContext,
    Fault,
    Finding,
    Note,
    limited,
)
from rocketpy_broker.store.check.index import IndexCheck
from rocketpy_broker.store.check.log import LogCheck
from rocketpy_broker.store.check.queues import QueuesCheck
from rocketpy_broker.store.check.read_only import (
    LoadedLog,
    ReadOnlyQueue,
    StoreReadLock,
    StoreSizes,
    load_log,
    queue_folder,
    queue_keys,
)
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import LogSpan
from rocketpy_broker.store.queues.dispatch import requests_of, topics_of
from rocketpy_broker.store.recovery.foreign import scan_start
from rocketpy_broker.store.recovery.plan import Traces
from rocketpy_broker.store.values import Damage
from rocketpy_proto.record.index_keys import are_tags, tags_codes_and_index_keys

DEFAULT_FORMAT = IndexFormat()


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """The size of the checked store; `log_bytes` ends at the log's end."""

    record_count: int
    queue_count: int
    topic_count: int
    log_bytes: int


class StoreCheck:
    """One check of the store in `folder`. `summary` has the counts of `run` so far."""

    def __init__(
        self, folder: Path, sizes: StoreSizes, index_format: IndexFormat = DEFAULT_FORMAT
    ) -> None:
        self._folder = folder
        self._sizes = sizes
        self._format = index_format
        self._started_last = True
        self.summary = CheckSummary(0, 0, 0, 0)

    @property
    def total_bytes(self) -> int:
        """The total number of bytes that `run` reports to `advance`."""
        names = (self._folder / "commitlog").glob("[0-9]*")
        return sum(path.stat().st_size for path in names)

    def run(self, advance: Advance = lambda _bytes: None) -> Iterator[Finding]:
        """Yields the faults and notes, up to a limit per file.

        Raises StoreDirectoryError, StoreLockedError, OSError.
        """
        with StoreReadLock(self._folder) as lock:
            self._started_last = lock.started_last
            loaded = load_log(self._folder, self._sizes.segment_bytes)
            try:
                yield from limited(self._run(loaded, advance))
            finally:
                loaded.log.close()

    def _run(self, loaded: LoadedLog, advance: Advance) -> Iterator[Finding]:
        context = self._context(loaded)
        yield from _how_it_was_left(context)
        yield from files.misplaced(loaded.misplaced)
        if context.has_checksums:
            yield from files.misplaced(loaded.misplaced_checksums)
        log, queues = LogCheck(context), QueuesCheck(context)
        index = IndexCheck(context, self._format)
        try:
            for item in log.spans(advance):
                if isinstance(item, Damage):
                    context.damages.append(item)
                    yield log.damage(item)
                else:
                    yield from log.records(item)
                    yield from log.fillers(item)
                    yield from _derived(item, queues, index)
            yield from log.records_after()
            yield from log.checksums()
            yield from queues.finish()
            yield from index.finish()
            yield from _small_files(context)
        finally:
            queues.close()
            index.close()
            keys = queues.keys
            topics = {key.topic for key in keys}
            log_bytes = max(context.log_end - context.log.begin, 0)
            self.summary = CheckSummary(log.record_count, len(keys), len(topics), log_bytes)

    def _context(self, loaded: LoadedLog) -> CheckContext:
        traces = Traces.read(self._folder, started_last=self._started_last).compared(loaded.log)
        their_start = 0 if traces.ours else self._their_start(loaded.log, traces)
        deleted = TopicMarks(self._folder / "config" / "deletedTopics.json")
        with contextlib.suppress(StoreDirectoryError):
            deleted.load()
        trust = traces.trust(their_start)
        return CheckContext(self._folder, self._sizes, traces, trust, loaded.log, deleted)

    def _their_start(self, log: CommitLog, traces: Traces) -> int:
        """Returns the start of RocketMQ's recovery."""
        checkpoint = StoreCheckpoint(self._folder / "checkpoint")
        checkpoint.load()
        queues_end, file_bytes = -1, self._sizes.queue_file_bytes
        for key in queue_keys(self._folder):
            with contextlib.suppress(StoreDirectoryError):
                queue = ReadOnlyQueue.load(queue_folder(self._folder, key), file_bytes, log.begin)
                queues_end = max(queues_end, queue.physical_end)
                queue.close()
        return scan_start(log, queues_end, checkpoint, abnormal=traces.abnormal)


# The due times of waiting messages depend on the broker's levels, which the store does not have.
DELAY_LEVELS = DelayLevels.parse()


def _how_it_was_left(context: CheckContext) -> Iterator[Finding]:
    if context.traces.aborted is not None:
        text = "the last run did not stop cleanly; the next start repairs the store"
        yield Note(context.folder / "abort", 0, text)
    if not context.has_checksums:
        text = "records are checked by their body's CRC only: another broker wrote them"
        yield Note(context.folder / "commitlog", 0, text)


def _derived(span: LogSpan, queues: QueuesCheck, index: IndexCheck) -> Iterator[Finding]:
    """Compares the units and index entries of a log span with its records."""
    block, offset = span.block, span.offset
    topics = topics_of(block)
    found = tags_codes_and_index_keys(block, topics)
    for request in requests_of(block, topics, found.tags_codes, offset, DELAY_LEVELS):
        queues.compare(request)
    times_ms = block.header["store_timestamp"].astype(np.int64)
    end, keys = offset + len(block.data), found.index_keys
    tags = are_tags(block, keys)
    yield from index.compare(keys, tags, block.positions + offset, times_ms, end)


def _small_files(context: CheckContext) -> Iterator[Finding]:
    yield from files.checkpoint(context)
    yield from files.mark(context)
    yield from files.manifest(context)
    yield from files.configuration(context)
    yield from files.deleted_topics(context)
    yield from files.unknown_files(context)


__all__ = ["CheckSummary", "Fault", "Finding", "Note", "StoreCheck"]
