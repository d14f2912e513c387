"""Acknowledgements of popped messages, and changes of their invisible time.

Both append records that the revive of the check point reads when the messages are due. The records
are durable on return; `ordered` has the rules of ordered pops. A change appends a new check point
and the acknowledgement of the old one in one write. Afterwards the old receipt acknowledges
nothing. As in RocketMQ, a change by a receipt that was acknowledged or changed before makes the
message visible once more. A repeated acknowledgement is accepted, and so is a late one:
the message may have been revived by then.
Source: AckMessageProcessor, ChangeInvisibleTimeProcessor, docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager, check_not_own
from rocketpy_broker.services.receipts.check_points import (
    CHANGED,
    COUNT_MAX,
    CheckPoint,
    ack_of,
)
from rocketpy_broker.services.receipts.handle import (
    MessageGoneError,
    Receipt,
    ReceiptIllegalError,
)
from rocketpy_broker.services.receipts.ordered import OrderedPops
from rocketpy_broker.services.receipts.revive_log import ReviveLog
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import AppendResult, QueueKey


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Acknowledged queue offsets of one check point; `queue` is of the real topic."""

    group: str
    queue: QueueKey
    offsets: Sequence[int]
    receipt: Receipt


class AckService:
    """The service for acknowledgements and changes of the invisible time."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        log: ReviveLog,
        ordered: OrderedPops,
        group_commit: GroupCommit,
        clock: Clock,
        invisible_ms_max: int,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._log = log
        self._ordered = ordered
        self._group_commit = group_commit
        self._clock = clock
        self._invisible_ms_max = invisible_ms_max

    async def ack(
        self, group: str, queue: QueueKey, offsets: Sequence[int], receipt: Receipt
    ) -> None:
        """Acknowledges messages of a receipt's check point; `queue` is of their real topic.

        Raises SubscriptionGroupNotExistError, TopicNotExistError, ReceiptIllegalError,
        MessageGoneError, ParameterIllegalError, StoreClosedError, StoreBusyError,
        TimerRefusedError, RecordIllegalError, FlushTimeoutError.
        """
        (error,) = await self.ack_all([Acknowledged(group, queue, offsets, receipt)])
        if error is not None:
            raise error

    async def ack_all(self, wanted: Sequence[Acknowledged]) -> list[BrokerError | None]:
        """Acknowledges messages of several check points; returns the error of each, or None.

        Raises FlushTimeoutError, StoreClosedError for all.
        """
        errors: list[BrokerError | None] = []
        end = 0
        for number, each in enumerate(wanted):
            if number:
                await take_slot()
            try:
                self._check(each.group, each.queue, each.offsets)
                await self._ready()
                written = self._append(each)
                end = end if written is None else written.end_offset
                errors.append(None)
            except BrokerError as error:
                errors.append(error)
        await self._group_commit.wait(end)
        return errors

    def _append(self, each: Acknowledged) -> AppendResult | None:
        if each.receipt.is_ordered:
            return self._ordered.ack(each.group, each.queue, each.offsets, each.receipt)
        revive_queue = self._log.queue(each.receipt.revive_queue_id)
        ack = ack_of(each.group, *each.queue, each.offsets, each.receipt)
        return self._log.append(revive_queue, (ack, each.receipt.visible_ms))

    async def change_invisible_time(
        self, group: str, queue: QueueKey, offset: int, receipt: Receipt, invisible_ms: int
    ) -> Receipt:
        """Makes a message visible `invisible_ms` from now; returns its new receipt.

        Raises as `ack` does.
        """
        self._check(group, queue, [offset])
        if not 0 <= invisible_ms <= self._invisible_ms_max:
            accepted = f"0 to {self._invisible_ms_max}"
            raise ParameterIllegalError("invisibleTime", invisible_ms, accepted)
        if receipt.is_ordered:
            return self._ordered.change(group, queue, offset, receipt, invisible_ms)
        revive_queue = self._log.queue(receipt.revive_queue_id)
        await self._ready()
        # Check points of one message differ in their time.
        now_ms = max(self._clock.now_ms(), receipt.pop_ms + 1)
        changed = replace(
            receipt,
            start_offset=offset,
            pop_ms=now_ms,
            invisible_ms=invisible_ms,
            queue_id=queue.queue_id,
            offset=offset,
        )
        point = CheckPoint(
            broker_name=receipt.broker_name,
            group=group,
            differences=(0,),
            invisible_ms=invisible_ms,
            count=1,
            pop_ms=now_ms,
            queue_id=queue.queue_id,
            revive_ms=now_ms + invisible_ms,
            start_offset=offset,
            topic=queue.topic,
            put_again_count=CHANGED,
        )
        ack = ack_of(group, *queue, [offset], receipt)
        written = self._log.append(
            revive_queue, (point, point.deliver_ms), (ack, receipt.visible_ms)
        )
        await self._group_commit.wait(written.end_offset)
        return changed

    def is_open(self, group: str, queue: QueueKey, receipt: Receipt) -> bool:
        """True if an acknowledgement of the receipt's message would have an effect.

        For a pop without order, only the time of the receipt counts.
        """
        if receipt.is_ordered:
            return self._ordered.is_open(group, queue, receipt)
        return receipt.visible_ms > self._clock.now_ms()

    async def _ready(self) -> None:
        await self._group_commit.admission.store_ready()
        await self._group_commit.admission.write_over()

    def _check(self, group: str, queue: QueueKey, offsets: Sequence[int]) -> None:
        check_not_own(group)
        self._groups.get(group)
        self._topics.get(queue.topic)
        # A queue may have become unreadable since the pop.
        if queue.queue_id < 0:
            raise ReceiptIllegalError(
                f"queue id {queue.queue_id} of topic {queue.topic!r:.200} is negative; "
                "acknowledge with the receipt's own queue"
            )
        if not 1 <= len(offsets) <= COUNT_MAX:
            accepted = f"1 to {COUNT_MAX}"
            raise ParameterIllegalError("number of acknowledged messages", len(offsets), accepted)
        bounds = self._store.range_of(queue)
        wrong = [each for each in offsets if not bounds.min_offset <= each < bounds.max_offset]
        if wrong:
            raise MessageGoneError(
                f"offset {wrong[0]} is not in queue {queue.queue_id} of topic "
                f"{queue.topic!r:.200}, which goes from {bounds.min_offset} to "
                f"{bounds.max_offset}; the message was removed"
            )
