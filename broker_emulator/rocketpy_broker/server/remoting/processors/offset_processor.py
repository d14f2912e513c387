"""Offsets of groups and queues for RocketMQ's clients and tools.

Source: ConsumerManageProcessor, AdminBrokerProcessor, docs/design/remoting.md section 2.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import OffsetNotFoundError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.tables import TableText
from rocketpy_broker.services.delay.progress import DeliveryProgress
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import FRAME_BYTES_MAX, MessageQueue, RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies.stats import DelayOffsets, ResetOffsetBody
from rocketpy_proto.remoting.headers.offsets import (
    UPPER,
    EarliestStoreTimeResponse,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketpy_proto.rocketpy.v1 import groups_pb2

# A frame has a header, too.
BODY_BYTES_MAX = FRAME_BYTES_MAX - 65_536
# Queues of an answer that are encoded in one scheduler slot: some ms.
QUEUES_A_SLOT = 1_000
NO_STORE_TIME, NO_OFFSET = -1, -1


class OffsetProcessor:
    """The processor of requests for offsets."""

    def __init__(self, offsets: Offsets, delay: DeliveryProgress, config: BrokerConfig) -> None:
        self._offsets = offsets.offsets
        self._committed = offsets.committed
        self._resetting = offsets.resetting
        self._delay = delay
        self._broker_name = config.broker_name

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.QUERY_CONSUMER_OFFSET: self._queried,
            Code.UPDATE_CONSUMER_OFFSET: self._updated,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: self._found,
            Code.GET_MAX_OFFSET: self._maximum,
            Code.GET_MIN_OFFSET: self._minimum,
            Code.GET_EARLIEST_MSG_STORETIME: self._earliest,
            Code.GET_ALL_CONSUMER_OFFSET: self._consumer_offsets,
            Code.GET_ALL_DELAY_OFFSET: self._delay_offsets,
            Code.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
        }

    def _queried(self, request: Request) -> RemotingCommand:
        header: QueryConsumerOffsetRequest = request.header
        queue = QueueKey(header.topic, header.queue_id)
        # Absent means True.
        is_zero = header.is_zero_if_not_found is not False
        group = header.consumer_group
        offset = self._offsets.consumer_offset(group, queue, set_zero_if_not_found=is_zero)
        if offset is None:
            raise OffsetNotFoundError(group, *queue)
        return request.answer(OffsetResponse(offset))

    async def _updated(self, request: Request) -> RemotingCommand:
        header: UpdateConsumerOffsetRequest = request.header
        queue = QueueKey(header.topic, header.queue_id)
        is_set = await self._offsets.update(header.consumer_group, queue, header.commit_offset)
        return request.answer(remark=None if is_set else "Offset has been previously reset")

    async def _found(self, request: Request) -> RemotingCommand:
        header: SearchOffsetRequest = request.header
        is_upper = (header.boundary_type or "").upper() == UPPER
        offset = await self._offsets.offset_by_time(
            _queue(request), header.store_ms, is_upper=is_upper
        )
        return request.answer(OffsetResponse(offset))

    def _maximum(self, request: Request) -> RemotingCommand:
        return request.answer(OffsetResponse(self._offsets.bounds(_queue(request)).max_offset))

    def _minimum(self, request: Request) -> RemotingCommand:
        return request.answer(OffsetResponse(self._offsets.bounds(_queue(request)).min_offset))

    async def _earliest(self, request: Request) -> RemotingCommand:
        store_ms = await self._offsets.earliest_store_ms(_queue(request))
        return request.answer(
            EarliestStoreTimeResponse(NO_STORE_TIME if store_ms is None else store_ms)
        )

    async def _consumer_offsets(self, request: Request) -> RemotingCommand:
        return request.answer(body=await self._committed.to_json(BODY_BYTES_MAX))

    def _delay_offsets(self, request: Request) -> RemotingCommand:
        version, offsets = self._delay.offsets()
        return request.answer(body=encode_body(DelayOffsets(offsets, version.value)))

    async def _reset(self, request: Request) -> RemotingCommand:
        header: ResetOffsetRequest = request.header
        reset = await self._resetting.reset(_reset_request(header))
        return request.answer(body=await self._reset_body(header.topic, reset.offsets))

    async def _reset_body(self, topic: str, offsets: Sequence[groups_pb2.ResetOffset]) -> bytes:
        table = TableText()
        for begin in range(0, len(offsets), QUEUES_A_SLOT):
            if begin:
                await take_slot("offsets")
            table.add(
                {
                    MessageQueue(self._broker_name, each.queue_id, topic): each.new_offset
                    for each in offsets[begin : begin + QUEUES_A_SLOT]
                }
            )
        return await table.body(ResetOffsetBody(), "offsetTable")


def _queue(request: Request) -> QueueKey:
    return QueueKey(request.header.topic, request.header.queue_id)


def _reset_request(header: ResetOffsetRequest) -> groups_pb2.ResetOffsetsRequest:
    """Returns the reset of one queue or all; a tool resets groups with members, too."""
    reset = groups_pb2.ResetOffsetsRequest(
        consumer_group=header.group, topic=header.topic, force=True
    )
    if header.queue_id >= 0:
        reset.queue_id = header.queue_id
    if header.queue_id >= 0 and header.offset != NO_OFFSET:
        reset.offset = header.offset
    elif header.store_ms < 0:
        reset.latest = True
    else:
        reset.timestamp_ms = header.store_ms
    return reset
