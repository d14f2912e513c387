"""Pops, peeks and notifications of RocketMQ's clients.

Clients make the receipts of normal messages from the answer's header. Messages of a retry topic
have the original topic, and their receipts in POP_CK. Source: PopMessageProcessor,
PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor, docs/design/remoting.md
section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.receipts.handle import Receipt, TopicKind, kind_of
from rocketpy_broker.services.receipts.pop_service import PopService
from rocketpy_broker.services.receipts.popped import (
    ANY_QUEUE,
    PollingFullError,
    Popped,
    PoppedQueue,
    PopRequest,
)
from rocketpy_broker.store.values import GetMessageStatus
from rocketpy_proto.model import TAG
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import properties_strings, rewritten, with_property
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.pop import (
    INIT_MIN,
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageRequest,
    PopMessageResponse,
)

POP_CK = "POP_CK"
# A request that is older than its poll time by this much is not served.
LATE_MS_MAX = 500
PART_SEPARATOR = ";"


class PopProcessor:
    """The processor of pops."""

    def __init__(self, pops: PopService, config: BrokerConfig, clock: Clock) -> None:
        self._pops = pops
        self._wait_ms_max = config.limits.pull_wait_ms_max
        self._clock = clock

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.POP_MESSAGE: self._pop,
            Code.PEEK_MESSAGE: self._peek,
            Code.NOTIFICATION: self._notify,
            Code.POLLING_INFO: self._polling_info,
        }

    async def _pop(self, request: Request) -> RemotingCommand:
        header: PopMessageRequest = request.header
        wait_ms = self._wait_ms(header.born_ms, header.poll_ms)
        if wait_ms < -LATE_MS_MAX:
            return self._empty(request, ResponseCode.POLLING_TIMEOUT)
        wanted = PopRequest(
            *(header.consumer_group, header.topic, max(header.queue_id, ANY_QUEUE)),
            *(header.max_msg_nums, header.invisible_ms, request.held_ms(self._bounded(wait_ms))),
            FilterText(header.expression_type or TAG, header.expression or "*"),
            from_min=header.init_mode == INIT_MIN,
            is_ordered=bool(header.is_order),
            attempt_id=header.attempt_id or "",
        )
        try:
            popped = await self._pops.pop(wanted)
        except PollingFullError:
            return self._empty(request, ResponseCode.POLLING_FULL)
        return _answer(request, popped, header.topic)

    async def _peek(self, request: Request) -> RemotingCommand:
        header: PeekMessageRequest = request.header
        wanted = PopRequest(
            *(header.consumer_group, header.topic, max(header.queue_id, ANY_QUEUE)),
            count_max=header.max_msg_nums,
        )
        return _answer(request, await self._pops.peek(wanted), header.topic)

    async def _notify(self, request: Request) -> RemotingCommand:
        header: NotificationRequest = request.header
        wanted = PopRequest(
            *(header.consumer_group, header.topic, max(header.queue_id, ANY_QUEUE)),
            wait_ms=request.held_ms(self._bounded(self._wait_ms(header.born_ms, header.poll_ms))),
            is_ordered=bool(header.is_order),
            attempt_id=header.attempt_id or "",
        )
        try:
            has_message = await self._pops.has_message(wanted)
        except PollingFullError:
            return request.answer(NotificationResponse(False, is_polling_full=True))
        return request.answer(NotificationResponse(has_message))

    def _polling_info(self, request: Request) -> RemotingCommand:
        header: PollingInfoRequest = request.header
        queue_id = max(header.queue_id, ANY_QUEUE)
        count = self._pops.polling_count(header.consumer_group, header.topic, queue_id)
        return request.answer(PollingInfoResponse(count))

    def _wait_ms(self, born_ms: int, poll_ms: int) -> int:
        """Returns the rest of the poll time; below 0 if it has passed."""
        now_ms = self._clock.now_ms()
        return (born_ms or now_ms) + poll_ms - now_ms

    def _bounded(self, wait_ms: int) -> int:
        return min(max(wait_ms, 0), self._wait_ms_max)

    def _empty(self, request: Request, code: ResponseCode) -> RemotingCommand:
        header: PopMessageRequest = request.header
        empty = PopMessageResponse(self._clock.now_ms(), header.invisible_ms, 0, 0)
        return request.answer(empty, code=code, remark=GetMessageStatus.NO_MESSAGE_IN_QUEUE.name)


def _answer(request: Request, popped: Popped, topic: str) -> RemotingCommand:
    starts = [(*_place(each), str(each.start_offset)) for each in popped.queues]
    offsets = [(*_place(each), ",".join(map(str, each.offsets))) for each in popped.queues]
    status = GetMessageStatus.FOUND if popped.queues else GetMessageStatus.NO_MESSAGE_IN_QUEUE
    return request.answer(
        PopMessageResponse(
            *(popped.pop_ms, popped.invisible_ms, popped.revive_queue.queue_id),
            popped.rest_count,
            PART_SEPARATOR.join(map(" ".join, starts)),
            PART_SEPARATOR.join(map(" ".join, offsets)),
            PART_SEPARATOR.join(map(_counts, popped.queues)) if popped.is_ordered else None,
        ),
        body=b"".join(_records(each, popped.receipts(each), topic) for each in popped.queues),
        code=ResponseCode.SUCCESS if popped.queues else ResponseCode.POLLING_TIMEOUT,
        remark=status.name,
    )


def _counts(part: PoppedQueue) -> str:
    """Returns the earlier deliveries of each message, and the fewest of the queue."""
    kind, queue_id = _place(part)
    rows = zip(part.offsets, part.counts, strict=True)
    entries = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in rows if count]
    return PART_SEPARATOR.join([*entries, f"{kind} {queue_id} {min(part.counts)}"])


def _place(part: PoppedQueue) -> tuple[str, str]:
    return kind_of(part.queue.topic).value, str(part.queue.queue_id)


def _records(part: PoppedQueue, receipts: list[Receipt], topic: str) -> bytes:
    """Returns the records of one queue as clients read them.

    A record without space for its receipt stays as stored; clients then make the receipt from the
    retry topic and the answer's header.
    """
    if kind_of(part.queue.topic) is TopicKind.NORMAL or part.queue.topic == topic:
        return bytes(part.block.data)
    texts = pa.array([str(each) for each in receipts], pa.string())
    strings = with_property(properties_strings(part.block), POP_CK, texts)
    fits = pc.less_equal(pc.binary_length(strings), PROPERTIES_BYTES_MAX).to_numpy(
        zero_copy_only=False
    )
    if fits.all():
        return bytes(rewritten(part.block, topic, strings).data)
    # In the order of the header's offsets. This is rare, and for at most 32 records.
    rows = (part.block.filter(np.arange(len(fits)) == row) for row in range(len(fits)))
    records = zip(rows, fits.tolist(), range(len(fits)), strict=True)
    return b"".join(
        bytes((rewritten(each, topic, strings.slice(row, 1)) if is_fit else each).data)
        for each, is_fit, row in records
    )
