"""Servicer of pulls and offsets.

RocketMQ's proxy does not serve these methods. A pull does not make messages invisible. Its stream
has a status, the messages, and the offset to continue at.
Source: docs/design/grpc_v2_semantics.md section 11.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import numpy as np

from rocketpy_broker.errors import OffsetNotFoundError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.name_rules import check_topic
from rocketpy_broker.server.apache_v2.receives.message_mapper import MessageMapper
from rocketpy_broker.server.apache_v2.receives.requests import (
    TEXT_FACTOR,
    WAIT_MS_MAX,
    before_deadline_ms,
    filter_text,
    group_and_topic,
    milliseconds,
)
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.call_memory import keep
from rocketpy_broker.services.offsets.service import CommittedOffset, OffsetService
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.receipts.popped import COUNT_MAX
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import GetMessageResult, QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import RecordBlock

_Response = service_pb2.PullMessageResponse


class QueueServicer:
    """The methods for pulls and offsets."""

    def __init__(
        self,
        pulls: PullService,
        offsets: OffsetService,
        topics: TopicConfigManager,
        clock: Clock,
    ) -> None:
        self._pulls = pulls
        self._offsets = offsets
        self._topics = topics
        self._mapper = MessageMapper(clock)

    def methods(self) -> Methods:
        """Returns the functions of the methods by name."""
        return {
            "PullMessage": self.pull,
            "UpdateOffset": self.update,
            "GetOffset": self.get,
            "QueryOffset": self.query,
        }

    async def pull(
        self, request: service_pb2.PullMessageRequest, caller: RequestContext
    ) -> AsyncIterator[service_pb2.PullMessageResponse]:
        """Yields the status, the messages and the next offset."""
        caller.check_client_id()
        topic = v2.Resource()
        topic.CopyFrom(request.message_queue.topic)
        wanted, next_offset = self._pull_request(request, caller), request.offset
        # A held call does not keep its request.
        del request
        keep(TEXT_FACTOR * len(wanted.filter_text.expression))
        if next_offset < 0:
            yield _Response(status=_MOVED)
            yield _Response(next_offset=self._offsets.bounds(wanted.queue).min_offset)
            return
        found = _NOT_FOUND
        async with contextlib.aclosing(self._pulls.pull(wanted)) as answers:
            async for answer in answers:
                next_offset = answer.result.next_offset
                if answer.code is ResponseCode.PULL_OFFSET_MOVED:
                    found = _MOVED
                elif messages := await self._messages(wanted, answer.result, topic):
                    yield _Response(status=status.success())
                    for message in messages:
                        yield _Response(message=message)
                    break
            else:
                yield _Response(status=found)
        yield _Response(next_offset=next_offset)

    def _pull_request(
        self, request: service_pb2.PullMessageRequest, caller: RequestContext
    ) -> PullRequest:
        group, topic = group_and_topic(caller, request.group, request.message_queue.topic)
        wait_ms = min(max(milliseconds(request.long_polling_timeout), 0), WAIT_MS_MAX)
        return PullRequest(
            QueueKey(topic, request.message_queue.id),
            max(request.offset, 0),
            wait_ms_max=before_deadline_ms(wait_ms, caller),
            filter_text=filter_text(request.filter_expression),
            consumer_group=group,
            count_max=min(max(request.batch_size, 1), COUNT_MAX),
        )

    async def _messages(
        self, request: PullRequest, result: GetMessageResult, topic: v2.Resource
    ) -> list[v2.Message]:
        """Returns the messages of an answer that have a wanted tag."""
        if not len(result.sizes):
            return []
        block = RecordBlock.parse(bytearray(result.data), result.sizes)
        rows = np.flatnonzero(request.filter_text.has_tag(block)).tolist()
        found = [await self._mapper.message(block, row, topic) for row in rows]
        return [message for message in found if message is not None]

    async def update(
        self, request: service_pb2.UpdateOffsetRequest, caller: RequestContext
    ) -> service_pb2.UpdateOffsetResponse:
        """Commits the offset of a group in a queue; the first one creates the group."""
        group, queue = self._group_and_queue(request, caller)
        if request.offset < 0:
            raise StatusError(
                v2.ILLEGAL_OFFSET, f"the offset is {request.offset}, accepted is 0 or more"
            )
        await self._offsets.commit(group, [CommittedOffset(queue, request.offset)])
        return service_pb2.UpdateOffsetResponse()

    async def get(
        self, request: service_pb2.GetOffsetRequest, caller: RequestContext
    ) -> service_pb2.GetOffsetResponse:
        """Returns the committed offset of a group in a queue."""
        group, queue = self._group_and_queue(request, caller)
        (offset,) = await self._offsets.consumer_offsets(
            group, [queue], set_zero_if_not_found=False
        )
        if offset is None:
            raise OffsetNotFoundError(group, *queue)
        return service_pb2.GetOffsetResponse(offset=offset)

    async def query(
        self, request: service_pb2.QueryOffsetRequest, caller: RequestContext
    ) -> service_pb2.QueryOffsetResponse:
        """Returns the minimum or maximum offset of a queue, or the first one since a time."""
        caller.check_client_id()
        topic = caller.name_of(request.message_queue.topic)
        check_topic(topic)
        queue = QueueKey(topic, request.message_queue.id)
        self._topics.check_readable(*queue)
        bounds, policy = self._offsets.bounds(queue), request.query_offset_policy
        if policy == v2.BEGINNING:
            offset = bounds.min_offset
        elif policy == v2.END:
            offset = bounds.max_offset
        elif policy == v2.TIMESTAMP and request.HasField("timestamp"):
            since_ms = milliseconds(request.timestamp)
            offset = await self._offsets.offset_by_time(queue, since_ms, is_upper=False)
        else:
            accepted = "BEGINNING, END, or TIMESTAMP with a timestamp"
            raise ParameterIllegalError("query_offset_policy", policy, accepted)
        return service_pb2.QueryOffsetResponse(offset=offset)

    def _group_and_queue(
        self,
        request: service_pb2.UpdateOffsetRequest | service_pb2.GetOffsetRequest,
        caller: RequestContext,
    ) -> tuple[str, QueueKey]:
        caller.check_client_id()
        queue = request.message_queue
        group, topic = group_and_topic(caller, request.group, queue.topic)
        return group, QueueKey(topic, queue.id)


_NOT_FOUND = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")
_MOVED = v2.Status(
    code=v2.ILLEGAL_OFFSET, message="the queue has no such offset; continue at next_offset"
)
