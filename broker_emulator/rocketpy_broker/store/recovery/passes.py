"""Recovery: the passes that make log, checksums, queues and index agree.

Every pass may be interrupted and repeated with the same result:

1. *Compare*: the files of queues and index are compared with the manifest. Files that agree are
   truncated to the manifest's end. If any file differs, the whole log is read. After another
   broker's run, the manifest does not count: checksums and marks after the first changed byte are
   removed.
2. *Scan*: records are read from there on and checked; see `scanner`. Damage is copied into
   quarantine and replaced by a filler, so that RocketMQ skips it, too; see `filler`. After another
   broker's run, the log ends where RocketMQ has cut it; see `foreign`.
3. *Dispatch*, during the scan: every record gets its unit, its index entries and its checksum,
   where they are missing or wrong.
4. *Cut*: bytes after the end are copied into quarantine and zeroed, so that they never pass for
   records later. Units and entries after the end are removed.
5. *Settle*: queues start with the first record that the log still has. Offsets of damaged records
   stay reserved. Unflushed data is written again and flushed.

Source: docs/design/storage.md section 10.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.filler import Lost, fill, has_filler, is_filler
from rocketpy_broker.store.log.scanner import Checksummed, LogScanner, LogSpan, Trust
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.dispatch import DispatchRequest, requests_of, topics_of
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.queues.units import UNIT
from rocketpy_broker.store.recovery.damage_fill import known_record, pieces_of
from rocketpy_broker.store.recovery.foreign import StaleRecords, part, unchanged_end
from rocketpy_broker.store.recovery.quarantine import Quarantine
from rocketpy_broker.store.times import TimestampScan
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.record import (
    MalformedRecordError,
    RecordBlock,
    decode_record,
    has_queue_offset,
)
from rocketpy_proto.record.index_keys import tags_codes_and_index_keys


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The findings of a recovery. Positions and lengths in bytes.

    `begin` is the start of the scan, `bytes_dropped` the size of the torn tail. `in_doubt` names
    the files that were not trusted and were rebuilt.
    """

    abnormal: bool
    begin: int
    end: int
    records_scanned: int
    units_dispatched: int
    bytes_dropped: int
    last_store_timestamp_ms: int
    damages: list[Damage] = field(default_factory=list)
    in_doubt: list[str] = field(default_factory=list)
    quarantined: list[Path] = field(default_factory=list)
    store_time_falls: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The loaded parts of a store."""

    log: CommitLog
    queues: ConsumeQueueTable
    index: IndexDispatch
    quarantine: Quarantine
    delay_levels: DelayLevels


class Recovery:
    """One recovery of loaded files."""

    def __init__(
        self,
        store: StoreParts,
        trust: Trust,
        manifest: Manifest | None,
        *,
        abnormal: bool,
        in_doubt: list[str],
        queues_end: int,
    ) -> None:
        self._store = store
        self._stale = StaleRecords(trust.flushed, queues_end, abnormal)
        self._scanner = LogScanner(store.log, trust)
        self._trust = trust
        self._manifest = manifest
        self._abnormal = abnormal
        self._in_doubt = in_doubt
        self._damages: list[Damage] = []
        # The offsets of all damaged records; one of the damages may cover several.
        self._damaged_offsets: set[int] = set()
        self._lost: list[Lost] = []
        self._quarantined: list[Path] = []
        self._records_scanned = 0
        self._units_dispatched = 0
        self._times = TimestampScan()
        self._next_offsets: dict[QueueKey, int] = {}

    def run(self) -> RecoveryResult:
        """Makes all files agree. Raises OSError; it may then be run again."""
        begin = self._compare()
        if self._manifest is not None:
            last_ms, falls = self._manifest.last_store_timestamp_ms, self._manifest.store_time_falls
            self._times.resume(last_ms, falls, begin, self._manifest.log_end)
        end = self._scan(begin)
        bytes_dropped = self._cut(end, whole=begin <= self._store.log.begin)
        self._finish()
        return RecoveryResult(
            self._abnormal,
            begin,
            end,
            self._records_scanned,
            self._units_dispatched,
            bytes_dropped,
            self._times.last_ms,
            self._damages,
            self._in_doubt,
            self._quarantined,
            self._times.falls,
        )

    # --- Compare ---

    def _compare(self) -> int:
        """Returns the physical offset from which the log has to be read."""
        store, manifest = self._store, self._manifest
        if manifest is None:
            store.log.checksums.verify_against({})
            store.index.reset()
            if not self._is_ours:
                unchanged = unchanged_end(store.log)
                store.log.checksums.truncate(unchanged)
                store.queues.cut_marks(unchanged)
            return store.log.begin
        for path in store.log.checksums.verify_against(manifest.checksums):
            self._in_doubt.append(f"checksums {path.name}")
        for key, prefixes in manifest.queues.items():
            queue = store.queues.get(key)
            if (queue is None or not queue.has_prefixes(prefixes)) and not self._is_gone(key):
                self._in_doubt.append(f"consume queue {key.topic}-{key.queue_id}")
        if not store.index.verify_against(manifest.index, manifest.log_end):
            self._in_doubt.append("index")
            store.index.reset()
        if manifest.log_end > store.log.files.end or self._in_doubt:
            store.index.reset()
            return store.log.begin
        # With ASYNC_FLUSH, a manifest may include records that a power cut has then lost.
        begin = max(min(manifest.log_end, self._trust.flushed), store.log.begin)
        store.queues.truncate(begin)
        return begin

    def _is_gone(self, key: QueueKey) -> bool:
        """True if the queue's topic has been deleted since the manifest was written."""
        assert self._manifest is not None
        return self._store.queues.deleted_below(key.topic) >= self._manifest.log_end

    # --- Scan and dispatch ---

    @property
    def _is_ours(self) -> bool:
        return self._trust.checksums is Checksummed.ALL

    def _scan(self, begin: int) -> int:
        """Reads the log from `begin` on; returns its end."""
        for item in self._scanner.scan(begin):
            if not isinstance(item, LogSpan):
                self._keep_apart(item)
            elif self._is_ours:
                self._dispatch(item)
            else:
                stale = self._dispatch_foreign(item)
                if stale is not None:
                    return stale
        return self._scanner.end

    def _dispatch_foreign(self, span: LogSpan) -> int | None:
        """Dispatches up to the first stale record; returns its offset, None if there is none."""
        begin = 0
        for row in self._stale.candidates(span).tolist():
            if row > begin:
                self._dispatch(part(span, begin, row))
                begin = row
            if self._stale.is_stale(span, row, self._next_offsets):
                return span.offset + int(span.block.positions[row])
        self._dispatch(part(span, begin, len(span.block)) if begin else span)
        return None

    def _dispatch(self, span: LogSpan) -> None:
        block, offset = span.block, span.offset
        self._records_scanned += len(block)
        self._store.log.complete_checksums(offset, block)
        topics = topics_of(block)
        found = tags_codes_and_index_keys(block, topics)
        store_timestamps_ms = block.header["store_timestamp"].astype(np.int64)
        self._times.add(store_timestamps_ms, block.positions + offset)
        self._store.index.put(found.index_keys, block.positions + offset, store_timestamps_ms)
        levels = self._store.delay_levels
        for request in requests_of(block, topics, found.tags_codes, offset, levels):
            self._dispatch_units(request)

    def _dispatch_units(self, request: DispatchRequest) -> None:
        alive = request.from_place(self._store.queues.deleted_below(request.queue.topic))
        if alive is not None:
            self._store.queues.grown(alive.queue).reconcile(alive.queue_offset, alive.units)
            self._next_offsets[alive.queue] = alive.queue_offset + len(alive.units)
            self._units_dispatched += len(alive.units)

    def _keep_apart(self, damage: Damage) -> None:
        """Keeps one copy of neighbouring damage, and fills each of its records."""
        log = self._store.log
        pieces = pieces_of(log, damage)
        self._damages.append(damage)
        self._damaged_offsets.update(piece.offset for piece in pieces)
        if not all(has_filler(log, piece) for piece in pieces):
            view = log.files.view(damage.offset, damage.length)
            self._quarantined.append(self._store.quarantine.keep_damage(damage, view))
        filled: list[Damage] = []
        for piece in pieces:
            if not self._fill(piece, filled):
                self._dispatch_filled(filled)
        self._dispatch_filled(filled)

    def _fill(self, damage: Damage, filled: list[Damage]) -> bool:
        """Fills one record; adds it to `filled` if its place is known, else returns False."""
        log = self._store.log
        known = known_record(log, self._store.queues, damage)
        if known is None and filled:
            # The record may follow one in `filled`, which gets its unit only now.
            self._dispatch_filled(filled)
            known = known_record(log, self._store.queues, damage)
        if known is None:
            # Reads the values now: the filler overwrites them.
            self._note_lost(damage)
        if not fill(log, damage, self._times.last_ms, known) or known is None:
            return False
        filled.append(damage)
        return True

    def _dispatch_filled(self, filled: list[Damage]) -> None:
        """Dispatches consecutive fillers and empties the list."""
        if filled:
            sizes = np.array([damage.length for damage in filled], np.int32)
            view = self._store.log.files.view(filled[0].offset, int(sizes.sum()))
            self._dispatch(LogSpan(filled[0].offset, RecordBlock.parse(view, sizes)))
            self._records_scanned -= len(filled)
            filled.clear()

    def _note_lost(self, damage: Damage) -> None:
        view = self._store.log.files.view(damage.offset, damage.length)
        with contextlib.suppress(MalformedRecordError):
            record = decode_record(view, check_crc=False).record
            if has_queue_offset(record.sys_flag) or is_filler(record):
                self._lost.append(Lost.of(record, damage.offset, damage.length))

    # --- Cut ---

    def _cut(self, end: int, *, whole: bool) -> int:
        """Drops the bytes after `end`; returns the number of nonzero ones."""
        dropped = cut(self._store, end, self._quarantined)
        if whole:
            for key, queue in self._store.queues.items():
                self._cut_garbage(key, queue)
        return dropped

    def _cut_garbage(self, key: QueueKey, queue: ConsumeQueue) -> None:
        """Truncates a queue after its last record, once the whole log has been read.

        Units of damaged records remain, so that their offsets are not assigned again.
        """
        if key not in self._next_offsets:
            queue.truncate(self._store.log.begin)
            return
        offset = self._next_offsets[key]
        damaged = set(self._damaged_offsets)
        damaged.update(lost.physical_offset for lost in self._lost)
        while damaged.intersection(queue.units(offset, offset + 1)["physical_offset"].tolist()):
            offset += 1
        queue.truncate_from(offset)

    # --- Settle ---

    def _finish(self) -> None:
        store = self._store
        for lost in self._lost:
            self._reserve_offset(lost)
        store.queues.correct_min_offsets(store.log.begin)
        store.log.make_durable(self._trust.flushed if self._is_ours else store.log.end)
        store.queues.flush()
        store.index.flush()

    def _reserve_offset(self, lost: Lost) -> None:
        """Reserves the queue offset of a damaged record that is the last of its queue.

        Otherwise the queue's next message would get this offset, and consumers beyond it would miss
        the message. The damaged record's own values count only if they fit the queue.
        """
        queue = self._store.queues.get(lost.queue)
        if queue is not None and queue.max_offset == lost.queue_offset:
            unit = np.array([(lost.physical_offset, lost.size, 0)], UNIT)
            queue.append(lost.queue_offset, unit)


def cut(store: StoreParts, end: int, kept: list[Path]) -> int:
    """Ends log, queues and index at `end`; returns the number of nonzero bytes of the log after it.

    First copies these bytes into quarantine, and adds the copies' paths to `kept`. Raises OSError.
    """
    log, dropped = store.log, 0
    for segment in log.files.dirty_segments(end, log.files.end):
        start = max(end - segment.base, 0)
        used = segment.used_end(start)
        if used > start:
            name = f"{segment.base + start:020d}.tail"
            kept.append(store.quarantine.keep(name, segment.view[start:used]))
            dropped += used - start
    log.truncate(end)
    store.queues.cut_marks(end)
    store.index.truncate(end)
    store.queues.truncate(end)
    return dropped
