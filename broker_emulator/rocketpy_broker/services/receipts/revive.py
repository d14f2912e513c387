"""Revival of popped messages that were not acknowledged in time.

A task for each revive queue reads check points and acknowledgements. A check point is due when the
task has read all entries up to ACK_GRACE_MS after its messages became visible. Then the task copies
unacknowledged messages to the pop retry topic of their topic and group, with one more delivery.

Each copy names its check point and its number there (`prepared_transaction_offset`). So a start
after a crash, which reads some check points again, copies nothing twice. The group of the revive
topic commits the last handled offset, once the copies are on disk, as RocketMQ does.
In memory are the check points of some seconds, since the timer appends them in order of time.
Source: PopReviveService, docs/design/storage.md section 15.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rocketpy_broker.errors import RecordIllegalError, StoreError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.delivery_loop import DeliveryLoop
from rocketpy_broker.services.delay.flushed_progress import FlushedProgress
from rocketpy_broker.services.delay.timer.service import TimerDelivery
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.receipts.check_points import CheckPoint, Key
from rocketpy_broker.services.receipts.handle import TopicKind, kind_of, pop_retry_topic
from rocketpy_broker.services.receipts.revive_log import Entry, ReviveLog
from rocketpy_broker.services.receipts.revived_records import copies_of, numbers_of
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.append.blocks import parts_within, tags_and_keys
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS, AppendHints
from rocketpy_broker.store.values import GetMessageStatus, PutCause, QueueKey, ReadLimits
from rocketpy_proto.counts import counted
from rocketpy_proto.model import SYSTEM_GROUP_PREFIX
from rocketpy_proto.model.configs import READ_WRITE, TopicConfig
from rocketpy_proto.record import RecordBlock, UnencodableRecordError

logger = logging.getLogger(__name__)
GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
ACK_GRACE_MS = 2_000
# The pause while check points wait, as RocketMQ's reviveInterval.
INTERVAL_MS = 1_000
SCAN_BYTES = 1 << 20


@dataclass(slots=True)
class _Waiting:
    """A check point that is not handled yet; `left` are its unacknowledged queue offsets."""

    entry: Entry
    point: CheckPoint
    left: set[int] = field(default_factory=set)


class ReviveQueue:
    """The task of one revive queue."""

    def __init__(
        self,
        queue: QueueKey,
        log: ReviveLog,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        committed: ConsumerOffsetManager,
        timer: TimerDelivery,
        group_commit: GroupCommit,
        held: LongPollWaiters,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._log = log
        self._store = store
        self._topics = topics
        self._groups = groups
        self._committed = committed
        self._timer = timer
        self._group_commit = group_commit
        self._clock = clock
        self._loop = DeliveryLoop("unacknowledged messages", queue, held, clock)
        self._next_offset = 0
        self._waiting: dict[Key, _Waiting] = {}
        # The delivery time of the last entry that was read; the wall clock may have gone back.
        self._seen_ms = 0
        self._progress: FlushedProgress[int] = FlushedProgress()
        self._handled_offset = -1
        # The log's end at the start, and the copies that it had, by retry queue.
        self._start_end = 0
        self._known: dict[QueueKey, set[int]] = {}
        self.is_working = False
        # Called with each handled check point and the number of its copied messages.
        self.revived = Listeners[[CheckPoint, int]]()

    def load(self) -> None:
        """Continues after the last handled check point."""
        self._handled_offset = self._committed.query(GROUP, *self._queue)
        bounds = self._store.range_of(self._queue)
        self._next_offset = min(max(self._handled_offset + 1, bounds.min_offset), bounds.max_offset)
        self._start_end = self._store.positions().log_end

    @property
    def waiting_count(self) -> int:
        """The number of check points that are read and not handled."""
        return len(self._waiting)

    async def run(self) -> None:
        """Revives messages until the broker stops."""
        await self._loop.run(self._step)

    async def _step(self) -> float | None:
        """Reads to the end of the queue and handles what is due; returns the time to wait.

        Returns None if no check point waits.
        """
        self.is_working = True
        try:
            await self._work()
        finally:
            self.is_working = False
        return INTERVAL_MS if self._waiting or self._progress.is_pending else None

    async def _work(self) -> None:
        self.commit_flushed()
        delivered_until_ms = self._timer.delivered_until_ms(self._clock.now_ms())
        while True:
            entries, following = self._log.read(self._queue, self._next_offset)
            for entry in entries:
                self._take(entry)
            if following == self._next_offset:
                break
            self._next_offset = following
            await self._handle_due(self._seen_ms)
            await take_slot()
        # An appended entry that is not visible yet may be an acknowledgement.
        if self._next_offset >= self._store.next_offset(self._queue):
            await self._handle_due(max(self._seen_ms, delivered_until_ms))
        self._mark()

    def _take(self, entry: Entry) -> None:
        if entry.deliver_ms:
            self._seen_ms = entry.deliver_ms
        content = entry.content
        if isinstance(content, CheckPoint):
            self._waiting.setdefault(
                content.key, _Waiting(entry, content, set(_unacknowledged(content)))
            )
        elif (found := self._waiting.get(content.key)) is not None:
            found.left.difference_update(content.all_offsets)

    async def _handle_due(self, seen_ms: int) -> None:
        seen_ms = min(seen_ms, self._clock.now_ms())
        due = [
            each
            for each in self._waiting.values()
            if not each.left or seen_ms - each.point.visible_ms > ACK_GRACE_MS
        ]
        for each in due:
            if not each.left or await self._revive(each):
                del self._waiting[each.point.key]

    async def _revive(self, waiting: _Waiting) -> bool:
        """Copies the unacknowledged messages; returns False if their topics do not permit it now.

        Raises StoreError; then nothing was copied.
        """
        point = waiting.point
        if not self._is_wanted(waiting):
            return True
        topic = point.topic
        if kind_of(topic) is TopicKind.NORMAL:
            topic = pop_retry_topic(point.group, topic)
        if self._is_delayed(point, topic):
            return False
        await self._make(topic)
        queue = QueueKey(topic, 0)
        left = await self._left(waiting, queue)
        await take_slot()
        await self._group_commit.admission.write_over()
        # Other tasks ran: a topic may be gone.
        if not (left and topic in self._topics and self._is_wanted(waiting)):
            return True
        if self._is_delayed(point, topic):
            return False
        found = self._records(point, left)
        if found:
            self._append(queue, point, numbers_of(waiting.entry.physical_offset, found), found)
        self.revived(point, len(found))
        return True

    def _is_wanted(self, waiting: _Waiting) -> bool:
        """True if the topic, its messages and the group of a check point still exist."""
        point = waiting.point
        gone_below = self._store.gone_below(point.topic)
        is_known = point.topic in self._topics and point.group in self._groups
        return is_known and waiting.entry.written_at >= gone_below

    def _is_delayed(self, point: CheckPoint, topic: str) -> bool:
        """True if the point's topic is being emptied, or its copies' topic is being deleted."""
        deletions = self._store.deletions
        return deletions.is_emptying(point.topic) or deletions.is_deleting(topic)

    async def _make(self, topic: str) -> None:
        if topic not in self._topics:
            try:
                await self._topics.make_retry_topics([TopicConfig(topic, 1, 1, int(READ_WRITE))])
            except OSError as error:
                raise StoreError(f"topic {topic!r:.200} cannot be created: {error}") from error

    async def _left(self, waiting: _Waiting, queue: QueueKey) -> list[tuple[int, int]]:
        """Returns number and queue offset of the messages without a copy from before the start."""
        place = waiting.entry.physical_offset
        numbered = [
            (number, offset)
            for number, offset in enumerate(waiting.point.offsets)
            if offset in waiting.left
        ]
        if place >= self._start_end:
            return numbered
        if queue not in self._known:
            self._known[queue] = await self._copies_since(queue, place)
        return [each for each in numbered if place + each[0] not in self._known[queue]]

    async def _copies_since(self, queue: QueueKey, log_offset: int) -> set[int]:
        """Returns the origins of the copies in a retry queue, from `log_offset` to the start."""
        offset = self._store.queue_lookup.first_after(queue, log_offset)
        end = self._store.queue_lookup.first_after(queue, self._start_end)
        known: set[int] = set()
        while offset < end:
            await take_slot()
            limits = ReadLimits.of_bytes(SCAN_BYTES)
            found = self._store.get_message(queue, offset, end, limits)
            offset = max(found.next_offset, offset + 1)
            if found.status is GetMessageStatus.FOUND:
                fields = RecordBlock.parse(found.data).header["prepared_transaction_offset"]
                known.update((~fields[fields < 0].astype(np.int64)).tolist())
        return known

    def _records(self, point: CheckPoint, left: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
        """Returns the records by number, without the ones that the store no longer has."""
        limits = ReadLimits.of_bytes(1)
        found = [
            (number, self._store.get_message(point.queue, offset, offset + 1, limits))
            for number, offset in left
        ]
        is_found = GetMessageStatus.FOUND
        return [(number, each.data) for number, each in found if each.status is is_found]

    def _append(
        self,
        queue: QueueKey,
        point: CheckPoint,
        numbers: np.ndarray,
        found: list[tuple[int, bytes]],
    ) -> None:
        data = bytearray(b"".join(data for _, data in found))
        try:
            block = copies_of(RecordBlock.parse(data), queue.topic, point, numbers)
            for part in parts_within(block, self._store.config):
                known = tags_and_keys(queue, part, self._store.config)
                hints = AppendHints(known, KEEP_NUMBERS, PutCause.SENT_BACK)
                self._store.append(queue, part, hints)
        except (RecordIllegalError, UnencodableRecordError, pa.ArrowInvalid) as error:
            lost = counted(len(found), "message")
            logger.critical(
                "lost %s of %s, which cannot be copied to the retry topic: %s",
                *(lost, point.queue, error),
            )
        finally:
            self._group_commit.flush_soon()

    def _mark(self) -> None:
        """Notes the last handled offset, to be committed when the copies are on disk."""
        offsets = [each.entry.queue_offset for each in self._waiting.values()]
        if not offsets:
            self._known.clear()
        handled = min(offsets, default=self._next_offset) - 1
        if handled > self._handled_offset:
            self._handled_offset = handled
            self._progress.mark(self._store.positions().log_end, handled)

    def commit_flushed(self) -> None:
        """Commits what is handled and on disk."""
        handled = self._progress.flushed(self._store.flushed_end)
        if handled is not None:
            self._committed.commit(GROUP, *self._queue, handled)


def _unacknowledged(point: CheckPoint) -> list[int]:
    return [offset for number, offset in enumerate(point.offsets) if not point.bits >> number & 1]
