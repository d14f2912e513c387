"""Ordered pops: the popped messages of a queue block its later ones.

The committed offset is the first unacknowledged message. Each move of it is also a check point
without messages in the log. So a start after a kill continues there. A delivery blocks its queue
only while the group is at the delivery's next offset. So a reset frees the queue. A change of the
invisible time is in memory until the next save, and a kill may lose it.
Source: ConsumerOrderInfoManager, AckMessageProcessor#ackOrderly, docs/design/storage.md section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.receipts.check_points import CheckPoint
from rocketpy_broker.services.receipts.handle import Receipt, ReceiptIllegalError
from rocketpy_broker.services.receipts.order_table import OrderedDelivery, OrderTable
from rocketpy_broker.services.receipts.positions import PopPositions
from rocketpy_broker.services.receipts.revive_log import ReviveLog
from rocketpy_broker.store.values import AppendResult, QueueKey

AT_ONCE = 0


class OrderedPops:
    """The blocked queues of groups with ordered pops."""

    def __init__(
        self,
        table: OrderTable,
        positions: PopPositions,
        log: ReviveLog,
        held: LongPollWaiters,
        clock: Clock,
    ) -> None:
        self._table = table
        self._positions = positions
        self._log = log
        self._held = held
        self._clock = clock

    def _current(self, group: str, queue: QueueKey) -> OrderedDelivery | None:
        """Returns the last delivery if the group is still at the delivery's next offset."""
        found = self._table.find(group, queue)
        is_current = found and found.next_offset == self._positions.find(group, queue)
        return found if is_current else None

    def blocked_until(self, group: str, queue: QueueKey, attempt_id: str) -> int | None:
        """Returns the wall time in ms at which a blocked queue is free; None if it is free now."""
        delivery = self._current(group, queue)
        if delivery is None or (attempt_id and delivery.attempt_id == attempt_id):
            return None
        until_ms = delivery.blocked_until()
        return until_ms if until_ms is not None and until_ms > self._clock.now_ms() else None

    def deliver(
        self,
        group: str,
        queue: QueueKey,
        offsets: list[int],
        pop_ms: int,
        invisible_ms: int,
        attempt_id: str,
    ) -> list[int]:
        """Blocks the queue for these messages; returns the earlier deliveries of each."""
        before = self._table.find(group, queue)
        counts: dict[int, int] = {}
        if before is not None:
            is_repeated = bool(attempt_id) and before.attempt_id == attempt_id
            known = [each for each in offsets if each in set(before.offsets)]
            counts = {each: before.counts.get(each, 0) + (not is_repeated) for each in known}
        if offsets[0] != self._positions.find(group, queue):
            self._positions.skip(group, queue, offsets[0])
        delivery = OrderedDelivery(pop_ms, invisible_ms, offsets, attempt_id, counts=counts)
        self._table.set(group, queue, delivery)
        return [counts.get(each, 0) for each in offsets]

    def ack(
        self, group: str, queue: QueueKey, offsets: Sequence[int], receipt: Receipt
    ) -> AppendResult | None:
        """Acknowledges messages; returns the append of the group's move, or None without a move.

        An acknowledgement of an older delivery has no effect. If a kill has lost the delivery, only
        the group's next message can be acknowledged. Raises ReceiptIllegalError, StoreClosedError,
        StoreBusyError.
        """
        position, delivery = self._positions.find(group, queue), self._current(group, queue)
        following, known = position, self._table.find(group, queue)
        if known is None or known.pop_ms < receipt.pop_ms:
            following = offsets[0] + 1 if [*offsets] == [position] else position
        elif delivery is not None and receipt.pop_ms == delivery.pop_ms:
            wrong = [each for each in offsets if each not in set(delivery.offsets)]
            if wrong:
                raise ReceiptIllegalError(
                    f"offset {wrong[0]} of queue {queue.queue_id} of topic {queue.topic!r:.200} "
                    "is not of the receipt's delivery; acknowledge with its own receipt"
                )
            delivery = replace(delivery, acked={*delivery.acked, *offsets})
            following = delivery.next_offset
        written = None
        if following is not None and following != position:
            written = self._move(group, queue, following, receipt.broker_name)
        if delivery is not None and receipt.pop_ms == delivery.pop_ms:
            self._table.update(group, queue, delivery)
        if self.blocked_until(group, queue, "") is None:
            self._held.notify_queue(queue)
        return written

    def is_open(self, group: str, queue: QueueKey, receipt: Receipt) -> bool:
        """True if the receipt's message is unacknowledged, and no newer delivery has it."""
        position, known = self._positions.find(group, queue), self._table.find(group, queue)
        if known is None or known.pop_ms < receipt.pop_ms:
            return position == receipt.offset
        left = known.offsets if self._current(group, queue) is known else []
        is_own = receipt.pop_ms == known.pop_ms
        return is_own and receipt.offset in left and receipt.offset not in known.acked

    def _move(self, group: str, queue: QueueKey, offset: int, broker_name: str) -> AppendResult:
        now_ms = self._clock.now_ms()
        point = CheckPoint(
            broker_name=broker_name,
            group=group,
            differences=(),
            invisible_ms=0,
            count=0,
            pop_ms=now_ms,
            queue_id=queue.queue_id,
            revive_ms=now_ms,
            start_offset=offset,
            topic=queue.topic,
        )
        written = self._log.append(self._log.next_queue(), (point, AT_ONCE))
        begin, end = written.physical_offset, written.end_offset
        self._positions.move(group, queue, offset, begin, end)
        return written

    def change(
        self, group: str, queue: QueueKey, offset: int, receipt: Receipt, invisible_ms: int
    ) -> Receipt:
        """Makes a message visible `invisible_ms` from now; an older receipt has no effect."""
        delivery = self._current(group, queue)
        is_own = delivery is not None and receipt.pop_ms == delivery.pop_ms
        if delivery is None or not is_own or offset not in delivery.offsets:
            return receipt
        visible_ms = self._clock.now_ms() + invisible_ms
        changed = replace(delivery, visible_ms={**delivery.visible_ms, offset: visible_ms})
        self._table.update(group, queue, changed)
        self._held.notify_queue(queue)
        # A receipt has no negative numbers; the wall clock may have gone back since the pop.
        return replace(receipt, invisible_ms=max(visible_ms - receipt.pop_ms, 0))
