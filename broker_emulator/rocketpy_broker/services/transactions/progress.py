"""Progress of transactions in memory and on disk, and unwritten op messages.

The group CID_RMQ_SYS_TRANS commits two offsets, as in RocketMQ. They are the first half message
that has not ended, and the first op message that later half messages need. Only offsets on disk are
committed.

`config/transactionLog.json` holds the log offset from which a start scans. A crash may have removed
the op messages of final messages after that offset. An old offset only costs time.
Without the file a start scans from the oldest open half message, so no transaction ends twice.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rocketpy_broker.services.config_files.file import ConfigFile
from rocketpy_broker.services.config_files.json_fields import as_long
from rocketpy_broker.services.config_files.saver import SavePlan, save_now
from rocketpy_broker.services.offsets.committed import NOT_COMMITTED, ConsumerOffsetManager
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.check_report import CheckReason, TransactionLines
from rocketpy_broker.services.transactions.messages import (
    CHECK_MAX_TIME_QUEUE,
    OP_QUEUE,
    HalfMessage,
    Operation,
    OpMessage,
    TransactionMessages,
)
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import NOTHING_NEEDED, MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.model import TRANSACTION_GROUP
from rocketpy_proto.record import decode_record

LOG_OFFSET = "logOffset"
MARK_BYTES = 64 << 20
READ_BYTES = 1 << 20
# Units per lookup in the queue of discarded messages, which rarely has more.
SCAN_UNITS = 1_000


@dataclass(slots=True)
class _Final:
    """A final message and its op message: the log's end before the first and after the second."""

    begin: int
    op_end: int | None = None


@dataclass(frozen=True, slots=True)
class _FlushedPosition:
    """Progress that is valid once the log is on disk up to `log_end`."""

    log_end: int
    next_half: int
    next_op: int


class TransactionProgress:
    """The progress of all transactions of one broker."""

    def __init__(
        self,
        folder: Path,
        store: MessageStore,
        committed: ConsumerOffsetManager,
        messages: TransactionMessages,
        table: TransactionTable,
    ) -> None:
        self._file = ConfigFile(folder / "transactionLog.json", (LOG_OFFSET,))
        self._store = store
        self._committed = committed
        self._messages = messages
        self._table = table
        self._marked = 0
        self._finals: deque[_Final] = deque()
        self._unwritten_ops: deque[tuple[int, Operation, _Final | None]] = deque()
        self._next = _FlushedPosition(0, 0, 0)
        store.open_from = self._open_from

    def _open_from(self) -> int:
        """Returns the log offset of the first open half message; cleaning stops there."""
        begin = self._table.next_half
        units = self._store.queue_lookup.unit_range(HALF_QUEUE, begin, begin + 1)
        return NOTHING_NEEDED if units is None else int(units.physical_offsets[0])

    # --- Deciding ---

    def decided(
        self, begin: int, half_offset: int, operation: Operation = Operation.COMMIT
    ) -> None:
        """Notes that the final message of a half message is at log offset `begin` or later."""
        final = _Final(begin)
        self._finals.append(final)
        self._add_decision(half_offset, operation, final)

    def rolled_back(self, half_offset: int) -> None:
        """Notes that a half message is rolled back."""
        self._add_decision(half_offset, Operation.ROLLBACK, None)

    def over(self, half_offset: int, operation: Operation) -> None:
        """Notes that a half message has ended for another reason."""
        self._add_decision(half_offset, operation, None)

    def _add_decision(self, half_offset: int, operation: Operation, final: _Final | None) -> None:
        self._unwritten_ops.append((half_offset, operation, final))
        self._table.decide(half_offset, operation)

    def write_ops(self) -> None:
        """Appends the unwritten op messages. Raises StoreClosedError, StoreBusyError."""
        while self._unwritten_ops:
            half_offset, operation, final = self._unwritten_ops[0]
            done = self._messages.append_op(half_offset, operation)
            self._unwritten_ops.popleft()
            self._table.note(OpMessage(done.queue_offset, (half_offset,), operation))
            if final is not None:
                final.op_end = done.end_offset

    # --- Saving ---

    def plan_save(self) -> SavePlan | None:
        """Returns a save of the offset for the next start's scan, after MARK_BYTES of progress."""
        self.commit_flushed()
        mark = self._mark()
        if mark - self._marked < MARK_BYTES:
            return None
        return self._save_plan(mark)

    def close(self) -> None:
        """Saves all at a clean stop, after the log is on disk. Blocks. Raises OSError."""
        self._pass_over()
        self.commit_flushed()
        self.commit_flushed()
        plan = self._save_plan(self._mark())
        plan.run()
        plan.saved()
        save_now(self._committed)

    def _pass_over(self) -> None:
        while self._table.advance():
            pass

    def _save_plan(self, mark: int) -> SavePlan:
        def saved() -> None:
            self._marked = mark

        return SavePlan(lambda: self._file.save({LOG_OFFSET: mark}), saved)

    def _mark(self) -> int:
        flushed = self._store.flushed_end
        finals = self._finals
        while finals and finals[0].op_end is not None and finals[0].op_end <= flushed:
            finals.popleft()
        return min(flushed, finals[0].begin) if finals else flushed

    def commit_flushed(self) -> None:
        """Commits the offsets of ended transactions that are on disk."""
        positions, known = self._store.positions(), self._next
        if known.log_end <= positions.flushed_end:
            for queue, offset in ((HALF_QUEUE, known.next_half), (OP_QUEUE, known.next_op)):
                if offset > max(
                    self._committed.query(TRANSACTION_GROUP, queue.topic, queue.queue_id), 0
                ):
                    self._committed.commit(TRANSACTION_GROUP, queue.topic, queue.queue_id, offset)
            table = self._table
            self._next = _FlushedPosition(positions.log_end, table.next_half, table.next_op)

    # --- Starting ---

    def load(self) -> None:
        """Finds ended and open transactions. Blocks. Raises ConfigFileError, OSError."""
        positions = self._store.positions()
        first_half = self._begin(HALF_QUEUE)
        self._table.begin(first_half, self._begin(OP_QUEUE))
        for data in self._records(OP_QUEUE, self._table.next_op):
            self._table.note(OpMessage.of(decode_record(data).record))
        self._pass_over()
        copies: dict[Hashable, list[int]] = {}
        for data in self._records(HALF_QUEUE, first_half):
            half = HalfMessage.of(data)
            if half.is_foreign:
                self._found_foreign(half, copies)
            else:
                self._found_half(half)
        saved = self._file.load(decode_mark)
        # In RocketMQ's store, a committed transaction may lack its op message.
        begin = self._oldest_open() if saved is None else min(saved, positions.log_end)
        if begin != saved:
            # A log that is cut below the saved offset may have grown past it by the next start.
            self._file.save({LOG_OFFSET: begin})
        self._marked = max(begin, positions.log_begin)
        lines = TransactionLines()
        for origins in self._store.batch_marks.halves_from(self._marked):
            for physical_offset in origins.tolist():
                self._found_final(physical_offset, Operation.COMMIT, lines)
        for data in self._records(CHECK_MAX_TIME_QUEUE, self._first_after_mark()):
            origin = decode_record(data).record.prepared_transaction_offset
            if origin < 0:
                self._found_final(~origin, Operation.DISCARDED, lines)
        lines.log()
        self._next = _FlushedPosition(positions.log_end, self._table.next_half, self._table.next_op)

    def _found_half(self, half: HalfMessage) -> None:
        """Takes in a half message; calls follow the order of the queue."""
        offset = half.record.queue_offset
        if half.first_offset == offset:
            return
        older = self._table.newest(half.first_offset, half.first_offset)
        if not self._table.is_over(older):
            # A crash came between the copy and the older one's op message.
            self.over(older, Operation.COPIED)
        self._table.copied(half.first_offset, offset)
        found = self._table.operation(half.first_offset, offset)
        if found not in (None, Operation.COPIED):
            self._table.finish(half.first_offset, found)

    def _found_foreign(self, half: HalfMessage, copies: dict[Hashable, list[int]]) -> None:
        """Takes in a half message that names no first one: the first itself, or RocketMQ's copy."""
        offset = half.record.queue_offset
        if half.check_times == 0:
            if not self._table.is_over(offset):
                copies[half.identity] = [offset]
            return
        for older in copies.setdefault(half.identity, []):
            if not self._table.is_over(older):
                self.over(older, Operation.COPIED)
            self._table.copied(older, offset)
        copies[half.identity].append(offset)

    def _oldest_open(self) -> int:
        """Returns the log offset of the oldest open half message, or the log's end."""
        for offset in range(self._table.next_half, self._store.range_of(HALF_QUEUE).max_offset):
            half = None if self._table.is_over(offset) else self._messages.half(offset)
            if half is not None:
                return half.record.physical_offset
        return self._store.positions().log_end

    def _first_after_mark(self) -> int:
        """Returns a queue offset; all discarded messages after the mark lie at or after it."""
        bounds = self._store.range_of(CHECK_MAX_TIME_QUEUE)
        end = bounds.max_offset
        while end > bounds.min_offset:
            begin = max(end - SCAN_UNITS, bounds.min_offset)
            units = self._store.queue_lookup.unit_range(CHECK_MAX_TIME_QUEUE, begin, end)
            if units is None or units.physical_offsets[0] < self._marked:
                return begin
            end = begin
        return end

    def _found_final(
        self, physical_offset: int, operation: Operation, lines: TransactionLines
    ) -> None:
        half = self._messages.half_at(physical_offset)
        if half is None:
            return
        offset = self._table.newest(half.first_offset, half.record.queue_offset)
        if not self._table.is_over(offset):
            lines.note(CheckReason.ENDED, half)
            self.decided(self._marked, offset, operation)
            self._table.finish(half.first_offset, operation)

    def _begin(self, queue: QueueKey) -> int:
        bounds = self._store.range_of(queue)
        committed = self._committed.query(TRANSACTION_GROUP, queue.topic, queue.queue_id)
        if committed == NOT_COMMITTED:
            return bounds.min_offset
        return min(max(committed, bounds.min_offset), bounds.max_offset)

    def _records(self, queue: QueueKey, offset: int) -> Iterator[bytes]:
        while offset < self._store.range_of(queue).max_offset:
            found = self._store.get_message(
                queue, offset, offset + 10_000, ReadLimits.of_bytes(READ_BYTES)
            )
            offset = max(found.next_offset, offset + 1)
            if found.status is GetMessageStatus.FOUND:
                data = found.data
                ends = np.cumsum(found.sizes, dtype=np.int64).tolist()
                for begin, end in itertools.pairwise([0, *ends]):
                    yield data[begin:end]


def decode_mark(content: Mapping[str, Any]) -> int:
    """Returns the log offset of a file's content. Raises ValueError."""
    return as_long(content.get(LOG_OFFSET))
