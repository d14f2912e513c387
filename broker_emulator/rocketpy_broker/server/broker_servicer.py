"""rocketpy.v1.Broker: translate, check, call a service, map the result. Holds no state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from rocketpy_broker.errors import BrokerError, FlushTimeoutError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.server import status
from rocketpy_broker.services.appending import AppendService, Stored
from rocketpy_broker.services.batch_log import Batch
from rocketpy_broker.services.batches import BatchService
from rocketpy_broker.services.key_lookup import KeyLookupService
from rocketpy_broker.services.offset_questions import OffsetQuestionService
from rocketpy_broker.services.offsets import CommittedOffset, OffsetService, QueueTime
from rocketpy_broker.services.pulling import PullService, response_code
from rocketpy_broker.services.range_limits import OffsetRange, RangeLimitService
from rocketpy_broker.store.prepared import PreparedRange
from rocketpy_broker.store.values import GetMessageResult, QueueKey
from rocketpy_broker.tasks import TaskScope
from rocketpy_proto.pull_wire import PullResponseParts, serialize
from rocketpy_proto.rocketpy.v1 import broker_pb2, common_pb2

SERVICE_NAME: str = broker_pb2.DESCRIPTOR.services_by_name["Broker"].full_name
Appended = Stored | BrokerError


class BrokerServicer:
    """The data path."""

    def __init__(
        self,
        appends: AppendService,
        batches: BatchService,
        pulls: PullService,
        offsets: OffsetService,
        questions: OffsetQuestionService,
        range_limits: RangeLimitService,
        key_lookup: KeyLookupService,
        appends_in_flight_max: int,
    ) -> None:
        self._appends = appends
        self._batches = batches
        self._pulls = pulls
        self._offsets = offsets
        self._questions = questions
        self._range_limits = range_limits
        self._key_lookup = key_lookup
        self._appends_in_flight_max = appends_in_flight_max

    async def append(
        self, requests: AsyncIterator[broker_pb2.AppendRequest], _context: status.Context
    ) -> AsyncIterator[broker_pb2.AppendResponse]:
        """Write each block as it comes; answer in order, as flushes complete."""
        written: asyncio.Queue[Appended | None] = asyncio.Queue(self._appends_in_flight_max)
        async with TaskScope() as scope:
            scope.start(self._append_all(requests, written))
            while (outcome := await written.get()) is not None:
                yield await self._append_response(outcome)

    async def _append_all(
        self,
        requests: AsyncIterator[broker_pb2.AppendRequest],
        written: asyncio.Queue[Appended | None],
    ) -> None:
        async for request in requests:
            await self._appends.room()
            try:
                outcome: Appended = self._appends.append(
                    request.topic,
                    request.queue_id,
                    request.records,
                    request.record_sizes,
                    request.prepared_token,
                )
            except BrokerError as error:
                outcome = error
            await written.put(outcome)
        await written.put(None)

    async def _append_response(self, outcome: Appended) -> broker_pb2.AppendResponse:
        if isinstance(outcome, BrokerError):
            return broker_pb2.AppendResponse(status=status.failure(outcome))
        answer = status.success()
        try:
            await self._appends.acknowledged(outcome)
        except FlushTimeoutError as error:
            # Stored all the same, so the answer says where.
            answer = status.failure(error)
        except BrokerError as error:
            return broker_pb2.AppendResponse(status=status.failure(error))
        result = outcome.result
        return broker_pb2.AppendResponse(
            status=answer,
            queue_id=result.queue.queue_id,
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            record_count=result.record_count,
            store_timestamp_ms=result.store_timestamp_ms,
        )

    async def commit_batch(
        self, request: broker_pb2.CommitBatchRequest, _context: status.Context
    ) -> broker_pb2.CommitBatchResponse:
        """Answered when every message of the batch is visible."""
        try:
            result = await self._batches.commit(_batch(request))
        except BrokerError as error:
            return broker_pb2.CommitBatchResponse(status=status.failure(error))
        return broker_pb2.CommitBatchResponse(
            status=status.success(),
            outcome=broker_pb2.COMMITTED if result.is_new else broker_pb2.ALREADY_COMMITTED,
            batch_id=result.batch_id,
            record_count=result.record_count,
        )

    async def pull(
        self, request: broker_pb2.PullRequest, _context: status.Context
    ) -> AsyncIterator[PullResponseParts]:
        """Stream what is there; hold the call where nothing is."""
        try:
            command = self._pulls.command(
                QueueKey(request.topic, request.queue_id),
                request.offset,
                request.offset_end,
                request.response_bytes_max,
                request.wait_ms_max,
                request.tags_codes,
            )
        except BrokerError as error:
            yield PullResponseParts(broker_pb2.PullResponse(status=status.failure(error)), [])
            return
        offset = command.offset
        async for result in self._pulls.pull(command):
            code = response_code(result, offset, command.offset_end)
            yield _pull_response(result, code, self._pulls.suggested_broker_id(result))
            offset = result.next_offset

    async def query_offsets(
        self, request: broker_pb2.QueryOffsetsRequest, _context: status.Context
    ) -> broker_pb2.QueryOffsetsResponse:
        """Each topic by itself: a missing one does not hide the others."""
        known = {QueueKey(each.topic, each.queue_id): each.max_offset for each in request.known}
        try:
            question = self._questions.question(
                request.topics, request.topic_pattern, known, request.wait_ms_max
            )
        except BrokerError as error:
            return broker_pb2.QueryOffsetsResponse(status=status.failure(error))
        topics = await self._questions.topics_when_new(question)
        return broker_pb2.QueryOffsetsResponse(
            status=status.success(),
            topics=[self._topic_offsets(topic, request.consumer_group) for topic in topics],
        )

    def _topic_offsets(self, topic: str, group: str) -> broker_pb2.TopicOffsets:
        try:
            queues = self._offsets.query(topic, group)
        except BrokerError as error:
            return broker_pb2.TopicOffsets(topic=topic, status=status.failure(error))
        return broker_pb2.TopicOffsets(
            topic=topic,
            status=status.success(),
            queues=[
                broker_pb2.QueueOffsets(
                    queue_id=queue.queue_id,
                    min_offset=queue.min_offset,
                    max_offset=queue.max_offset,
                    committed_offset=queue.committed_offset,
                )
                for queue in queues
            ],
        )

    async def search_offsets(
        self, request: broker_pb2.SearchOffsetsRequest, _context: status.Context
    ) -> broker_pb2.SearchOffsetsResponse:
        """All queues or an error."""
        times = [
            QueueTime(QueueKey(entry.topic, entry.queue_id), entry.timestamp_ms)
            for entry in request.queues
        ]
        try:
            found = await self._offsets.search(times)
        except BrokerError as error:
            return broker_pb2.SearchOffsetsResponse(status=status.failure(error))
        return broker_pb2.SearchOffsetsResponse(
            status=status.success(),
            offsets=[
                broker_pb2.FoundOffset(found=each.found, offset=each.offset) for each in found
            ],
        )

    async def find_keys(
        self, request: broker_pb2.FindKeysRequest, _context: status.Context
    ) -> broker_pb2.FindKeysResponse:
        """All ranges or an error."""
        try:
            found = await self._key_lookup.find(_ranges(request.ranges), request.keys)
        except BrokerError as error:
            return broker_pb2.FindKeysResponse(status=status.failure(error))
        return broker_pb2.FindKeysResponse(
            status=status.success(),
            ranges=[
                broker_pb2.OffsetRange(
                    topic=part.queue.topic,
                    queue_id=part.queue.queue_id,
                    begin=part.begin,
                    end=part.end,
                )
                for part in found
            ],
        )

    async def limit_ranges(
        self, request: broker_pb2.LimitRangesRequest, _context: status.Context
    ) -> broker_pb2.LimitRangesResponse:
        """All ranges or an error."""
        try:
            reached = await self._range_limits.limit(_ranges(request.ranges), request.bytes_max)
        except BrokerError as error:
            return broker_pb2.LimitRangesResponse(status=status.failure(error))
        return broker_pb2.LimitRangesResponse(
            status=status.success(),
            ends=[reach.end for reach in reached],
            bytes=sum(reach.bytes for reach in reached),
        )

    async def commit_offsets(
        self, request: broker_pb2.CommitOffsetsRequest, _context: status.Context
    ) -> broker_pb2.CommitOffsetsResponse:
        """All or nothing."""
        wanted = [
            CommittedOffset(QueueKey(entry.topic, entry.queue_id), entry.offset)
            for entry in request.offsets
        ]
        try:
            self._offsets.commit(request.consumer_group, wanted)
        except BrokerError as error:
            return broker_pb2.CommitOffsetsResponse(status=status.failure(error))
        return broker_pb2.CommitOffsetsResponse(status=status.success())

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """The methods with their codecs. Written out, because Pull has a serializer of its own."""
        return {
            "Append": grpc.stream_stream_rpc_method_handler(
                self.append,
                request_deserializer=broker_pb2.AppendRequest.FromString,
                response_serializer=broker_pb2.AppendResponse.SerializeToString,
            ),
            "Pull": grpc.unary_stream_rpc_method_handler(
                self.pull,
                request_deserializer=broker_pb2.PullRequest.FromString,
                response_serializer=serialize,
            ),
            "CommitBatch": _unary(self.commit_batch, broker_pb2.CommitBatchRequest),
            "QueryOffsets": _unary(self.query_offsets, broker_pb2.QueryOffsetsRequest),
            "SearchOffsets": _unary(self.search_offsets, broker_pb2.SearchOffsetsRequest),
            "FindKeys": _unary(self.find_keys, broker_pb2.FindKeysRequest),
            "LimitRanges": _unary(self.limit_ranges, broker_pb2.LimitRangesRequest),
            "CommitOffsets": _unary(self.commit_offsets, broker_pb2.CommitOffsetsRequest),
        }


def _unary(method: Callable[..., Any], request: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _ranges(wanted: Iterable[broker_pb2.OffsetRange]) -> list[OffsetRange]:
    return [
        OffsetRange(QueueKey(part.topic, part.queue_id), part.begin, part.end) for part in wanted
    ]


def _batch(request: broker_pb2.CommitBatchRequest) -> Batch:
    return Batch(
        request.writer_id,
        request.batch_id,
        request.prepared_token,
        tuple(
            PreparedRange(
                QueueKey(wanted.topic, wanted.queue_id),
                wanted.physical_offset,
                wanted.length,
                wanted.record_count,
            )
            for wanted in request.ranges
        ),
    )


def _pull_response(
    result: GetMessageResult, code: ResponseCode, suggested_broker_id: int
) -> PullResponseParts:
    head = broker_pb2.PullResponse(
        status=common_pb2.Status(code=code),
        pull_status=cast("broker_pb2.PullStatus", int(result.status)),
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        suggested_broker_id=suggested_broker_id,
        record_sizes=result.sizes.astype(">i4").tobytes(),
    )
    return PullResponseParts(head, result.parts)
