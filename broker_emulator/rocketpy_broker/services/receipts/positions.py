"""Next offsets of groups that pop.

A pop moves the group's committed offset once its check point is on disk; until then the next offset
is in memory. The table of offsets is saved at intervals, with the log offset up to which it covers
the check points. A start after a crash reads the later check points. So no message is popped again
that was acknowledged. A reset first commits all pops: their check points must not undo it.
Source: PopMessageProcessor#getPopOffset, docs/design/storage.md section 15.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from rocketpy_broker.errors import StoreError
from rocketpy_broker.services.config_files.saver import SavePlan, save_now
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.receipts.check_points import CheckPoint
from rocketpy_broker.services.receipts.handle import TopicKind, kind_of
from rocketpy_broker.services.receipts.revive_log import ReviveLog
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey


@dataclass(frozen=True, slots=True)
class _Move:
    """A move of a group to `offset`; the log has its check point, if any, from `begin` to `end`."""

    begin: int
    end: int
    group: str
    queue: QueueKey
    offset: int


class PopPositions:
    """The next offsets, by group and queue. As a table it has no file of its own."""

    def __init__(
        self, store: MessageStore, topics: TopicConfigManager, offsets: Offsets, log: ReviveLog
    ) -> None:
        self._store = store
        self._topics = topics
        self._committed: ConsumerOffsetManager = offsets.committed
        self._offsets: OffsetService = offsets.offsets
        self._saver = offsets.saver
        self._log = log
        self._moves: deque[_Move] = deque()
        self._beginning = asyncio.Lock()
        self._is_begun = False
        self._next: dict[tuple[str, QueueKey], _Move] = {}

    def load(self) -> None:
        """Takes in the check points since the last save. Blocks."""
        begin = self._committed.pop_log_offset
        if begin is None:
            return
        if begin > self._store.positions().log_end:
            # The log was cut. The next pop saves the log's end again.
            self._committed.pop_log_offset = None
            return
        for entry in self._log.written_from(begin):
            point = entry.content
            if isinstance(point, CheckPoint) and self._is_current(entry.written_at, point):
                committed = self._committed.query(point.group, *point.queue)
                end = self._store.range_of(point.queue).max_offset
                if committed < min(point.next_offset, end):
                    self._committed.commit(point.group, *point.queue, min(point.next_offset, end))

    def _is_current(self, written_at: int, point: CheckPoint) -> bool:
        is_known = point.topic in self._topics and self._offsets.group_exists(point.group)
        is_pop = point.put_again_count is None
        return is_known and is_pop and written_at >= self._store.deleted_below(point.topic)

    async def begin(self) -> None:
        """Saves the log's end before the directory's first check point. Raises StoreError.

        A start reads the check points after that log offset.
        """
        if self._is_begun:
            return
        async with self._beginning:
            if self._committed.pop_log_offset is None:
                self._committed.cover_pops(self._store.positions().log_end)
            # A failed save is tried again: the table has the change.
            try:
                await self._saver.save()
            except OSError as error:
                raise StoreError(
                    f"no pop is possible until consumerOffset.json can be saved: {error}"
                ) from error
            self._is_begun = True

    def find(self, group: str, queue: QueueKey) -> int | None:
        """Returns the next offset; None if the group has none."""
        committed = self._committed.query(group, *queue)
        move = self._next.get((group, queue))
        offset = max(committed, move.offset if move and self._is_valid(move) else committed)
        return None if offset < 0 else offset

    def get(self, group: str, queue: QueueKey, *, from_min: bool) -> int:
        """Returns the next offset; commits it after a reset, at a first pop, or if it was wrong."""
        offset = self._offsets.take_reset(group, queue)
        if offset is not None:
            self.commit_all()
        else:
            offset = self.find(group, queue)
            end = self._store.range_of(queue).max_offset
            if offset is not None and offset <= end:
                return offset
            # A client may have committed an offset that the queue does not have.
            offset = end if offset is not None else self.first(group, queue, from_min=from_min)
        self._committed.commit(group, *queue, offset)
        return offset

    def first(self, group: str, queue: QueueKey, *, from_min: bool) -> int:
        """Returns the offset at which a new group starts, as in RocketMQ."""
        bounds = self._store.range_of(queue)
        if from_min or kind_of(queue.topic) is not TopicKind.NORMAL:
            return bounds.min_offset
        known = self._offsets.consumer_offset(group, queue, set_zero_if_not_found=True)
        return max(bounds.max_offset - 1, 0) if known is None else known

    def move(self, group: str, queue: QueueKey, offset: int, begin: int, end: int) -> None:
        """Moves the group to `offset`; commits it once the log is on disk up to `end`."""
        move = self._next[group, queue] = _Move(begin, end, group, queue, offset)
        self._moves.append(move)

    def _is_valid(self, move: _Move) -> bool:
        """True if neither the topic nor the group was deleted since."""
        is_known = move.queue.topic in self._topics and self._offsets.group_exists(move.group)
        return is_known and move.begin >= self._store.deleted_below(move.queue.topic)

    def skip(self, group: str, queue: QueueKey, offset: int) -> None:
        """Moves the group over messages that do not match."""
        end = self._store.positions().log_end
        self.move(group, queue, offset, end, end)

    def commit_flushed(self) -> None:
        """Commits the moves whose check points are on disk."""
        flushed = self._store.flushed_end
        self._commit_below(flushed)
        if self._committed.pop_log_offset is not None:
            begin = self._moves[0].begin if self._moves else flushed
            self._committed.cover_pops(min(begin, flushed))

    def commit_all(self) -> None:
        """Commits all moves, also moves that are not on disk yet."""
        end = self._store.positions().log_end
        self._commit_below(end)
        if self._committed.pop_log_offset is not None:
            self._committed.cover_pops(end)

    def _commit_below(self, end: int) -> None:
        while self._moves and self._moves[0].end <= end:
            move = self._moves.popleft()
            if self._next.get((move.group, move.queue)) is move:
                del self._next[move.group, move.queue]
            if self._is_valid(move):
                self._committed.commit(move.group, *move.queue, move.offset)

    def plan_save(self) -> SavePlan | None:
        """Commits what is on disk, for the next save of the offsets; has nothing to save."""
        self.commit_flushed()
        return None

    def close(self) -> None:
        """Saves all at a clean stop, after the log is on disk. Blocks. Raises OSError."""
        self.commit_flushed()
        save_now(self._committed)
