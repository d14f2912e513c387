"""Acknowledgements of popped messages, and changes of their invisible time.

Source: AckMessageProcessor, ChangeInvisibleTimeProcessor, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.receipts.ack_service import Acknowledged, AckService
from rocketpy_broker.services.receipts.check_points import COUNT_MAX
from rocketpy_broker.services.receipts.handle import (
    TIME_MS_MAX,
    MessageGoneError,
    Receipt,
    TopicKind,
    real_topic,
)
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.bodies.pop import BatchAck, BatchAckMessageBody
from rocketpy_proto.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)

ACKS_MAX = 1_000
# Up to 100 microseconds each.
ACKS_A_SLOT = 20
BITS_BYTES_MAX = 8_192


class AckProcessor:
    """The processor of acknowledgements."""

    def __init__(self, acks: AckService, config: BrokerConfig) -> None:
        self._acks = acks
        self._broker_name = config.broker_name
        self._bytes_max = config.limits.clients.request_bytes_max

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.ACK_MESSAGE: self._ack,
            Code.BATCH_ACK_MESSAGE: self._batch_ack,
            Code.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            # RocketMQ moves pops from its KV store to the revive topic, where ours are already.
            Code.POP_ROLLBACK: Request.answer,
        }

    async def _ack(self, request: Request) -> RemotingCommand:
        header: AckMessageRequest = request.header
        queue, receipt = QueueKey(header.topic, header.queue_id), Receipt.parse(header.extra_info)
        await self._acks.ack(header.consumer_group, queue, [header.offset], receipt)
        return request.answer()

    async def _batch_ack(self, request: Request) -> RemotingCommand:
        """Acknowledges all that it can; the answer has the first error."""
        body: BatchAckMessageBody = await request.bounded_body(self._bytes_max)
        if not body.acks:
            raise MessageGoneError("the request acknowledges no message")
        if len(body.acks) > ACKS_MAX:
            raise ParameterIllegalError("number of acks", len(body.acks), f"1 to {ACKS_MAX}")
        broker_name = body.broker_name or self._broker_name
        wanted: list[Acknowledged] = []
        for number, each in enumerate(body.acks, 1):
            wanted.append(_acknowledged(each, broker_name))
            if number % ACKS_A_SLOT == 0:
                await take_slot()
        errors = await self._acks.ack_all(wanted)
        for error in errors:
            if error is not None:
                raise error
        return request.answer()

    async def _change(self, request: Request) -> RemotingCommand:
        header: ChangeInvisibleTimeRequest = request.header
        changed = await self._acks.change_invisible_time(
            header.consumer_group,
            QueueKey(header.topic, header.queue_id),
            header.offset,
            Receipt.parse(header.extra_info),
            header.invisible_ms,
        )
        return request.answer(
            ChangeInvisibleTimeResponse(
                changed.pop_ms, changed.invisible_ms, changed.revive_queue_id
            )
        )


def _acknowledged(ack: BatchAck, broker_name: str) -> Acknowledged:
    """Returns what an entry of a batch acknowledges. Raises ParameterIllegalError."""
    if ack.retry not in set(TopicKind):
        raise ParameterIllegalError("r", ack.retry, ", ".join(TopicKind))
    if min(ack.pop_ms, ack.invisible_ms, ack.start_offset) < 0:
        least = min(ack.pop_ms, ack.invisible_ms, ack.start_offset)
        raise ParameterIllegalError("least of so, pt and it", least, "0 or more")
    if ack.pop_ms + ack.invisible_ms > TIME_MS_MAX:
        time_ms = ack.pop_ms + ack.invisible_ms
        raise ParameterIllegalError("pt plus it", time_ms, f"up to {TIME_MS_MAX}")
    if len(ack.bits) > BITS_BYTES_MAX:
        accepted = f"{BITS_BYTES_MAX} or fewer"
        raise ParameterIllegalError("bytes of b", len(ack.bits), accepted)
    bits = np.unpackbits(np.frombuffer(ack.bits, np.uint8), bitorder="little")
    count = int(np.count_nonzero(bits))
    if count > COUNT_MAX:
        accepted = f"up to {COUNT_MAX}"
        raise ParameterIllegalError("number of acknowledged messages", count, accepted)
    offsets = (ack.start_offset + np.flatnonzero(bits)).tolist()
    kind = TopicKind(ack.retry)
    topic = real_topic(kind, ack.consumer_group, ack.topic)
    receipt = Receipt(
        *(ack.start_offset, ack.pop_ms, ack.invisible_ms, ack.revive_queue_id),
        *(kind, broker_name, ack.queue_id, ack.start_offset),
    )
    return Acknowledged(ack.consumer_group, QueueKey(topic, ack.queue_id), offsets, receipt)
