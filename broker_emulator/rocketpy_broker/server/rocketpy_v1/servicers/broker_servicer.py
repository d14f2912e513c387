"""The servicer of messages, offsets and filters, a part of rocketpy.v1.Broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import grpc

from rocketpy_broker.errors import BrokerError, OffsetNotFoundError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.append_answers import AppendAnswers
from rocketpy_broker.server.rocketpy_v1.handlers import (
    all_bounded,
    decoder,
    decoder_of_large,
)
from rocketpy_broker.server.rocketpy_v1.offset_messages import (
    OffsetsAnswer,
    known_offsets,
)
from rocketpy_broker.services.delay.recall import RecallService
from rocketpy_broker.services.filters.service import FilterService, FilterText
from rocketpy_broker.services.offsets.queries import OffsetQueryService
from rocketpy_broker.services.offsets.service import (
    CommittedOffset,
    OffsetService,
)
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.services.pull.service import PullAnswer, PullService
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import OFFSET_QUERY_BYTES_MAX
from rocketpy_proto.pull_wire import PullResponseParts, serialize
from rocketpy_proto.rocketpy.v1 import broker_pb2, common_pb2

# Topics of an offset query per scheduler slot.
TOPICS_A_SLOT = 100


class BrokerServicer:
    """The methods for sends, pulls, offsets, filters and recalls."""

    def __init__(
        self,
        store: MessageStore,
        sends: SendService,
        pulls: PullService,
        filters: FilterService,
        offsets: OffsetService,
        offset_queries: OffsetQueryService,
        recall: RecallService,
        appends_in_flight_max: int,
        clock: Clock,
        on_appended: Callable[[int, float], None] | None,
    ) -> None:
        """Calls `on_appended` with the response code and the duration in ms of each block."""
        self._store = store
        self._sends = sends
        self._pulls = pulls
        self._filters = filters
        self._offsets = offsets
        self._offset_queries = offset_queries
        self._recall = recall
        self._appends_in_flight_max = appends_in_flight_max
        self._clock = clock
        self._on_appended = on_appended

    async def append(
        self,
        requests: AsyncIterator[broker_pb2.AppendRequest | BrokerError],
        context: status.Context,
    ) -> None:
        """Appends each block as it comes; answers in order, as flushes complete."""
        scheduler.connection.set(context.peer())
        now_ms, on_appended = self._clock.monotonic_ms, self._on_appended

        def answered(code: int, begin_ms: float) -> None:
            if on_appended is not None:
                on_appended(code, now_ms() - begin_ms)

        limit = self._appends_in_flight_max
        answers = AppendAnswers(self._sends, context, limit, answered)
        async with TaskScope() as scope:
            scope.start(answers.run())
            async for request in requests:
                begin_ms = 0.0 if on_appended is None else now_ms()
                await answers.add(await self._appended(request), begin_ms)
            await answers.written()

    async def _appended(
        self, request: broker_pb2.AppendRequest | BrokerError
    ) -> Stored | BrokerError:
        try:
            if isinstance(request, BrokerError):
                return request
            self._store.check_id(request.store_id)
            if request.default_topic:
                await self._sends.preconditions.create_topic(
                    request.topic, request.default_topic, request.default_topic_queue_nums
                )
            return await self._sends.append(
                request.topic,
                request.queue_id,
                request.records,
                request.record_sizes,
            )
        except BrokerError as error:
            return error

    async def pull(
        self,
        request: broker_pb2.PullRequest | BrokerError,
        context: status.Context,
    ) -> AsyncIterator[PullResponseParts]:
        """Yields stored messages; holds the call while there is none."""
        scheduler.connection.set(context.peer())
        try:
            if isinstance(request, BrokerError):
                raise request
            self._store.check_id(request.store_id)
            async for answer in self._pulls.pull(_pull_request(request)):
                yield _pull_response(answer)
        except BrokerError as error:
            yield PullResponseParts(broker_pb2.PullResponse(status=status.failure(error)), [])

    async def check_filter(self, request: broker_pb2.CheckFilterRequest) -> None:
        """Compiles a filter without reading messages."""
        self._filters.filter_of(FilterText(request.expression_type, request.expression))

    async def query_offsets(self, request: broker_pb2.QueryOffsetsRequest) -> OffsetsAnswer:
        """Returns each topic with its own status, so a missing topic does not fail the call."""
        known = await known_offsets(request)
        self._store.check_id(request.store_id)
        query = self._offset_queries.query(
            list(request.topics),
            request.topic_pattern,
            known,
            request.wait_ms_max,
            request.recovery_id,
        )
        group = request.consumer_group
        # The request is large, and the query may be held.
        del request
        topics = await self._offset_queries.topics_when_new(query)
        response = OffsetsAnswer(
            broker_pb2.QueryOffsetsResponse(
                status=status.success(),
                store_id=self._store.store_id,
                recovery_id=self._offset_queries.recovery_id,
                slave=self._store.slave_refusal is not None,
            )
        )
        topics_a_slot = TOPICS_A_SLOT if query.log_end is None else 1
        for number, topic in enumerate(topics, 1):
            part = broker_pb2.QueryOffsetsResponse()
            answer = part.topics.add(topic=topic)
            await self._add_offsets(answer, group, query.log_end, known.hidden.get(topic, ()))
            response.add(part)
            if number % topics_a_slot == 0:
                await take_slot("offsets")
        if group:
            exists = self._offsets.group_exists(group)
            response.add(broker_pb2.QueryOffsetsResponse(consumer_group_exists=exists))
        return response

    async def _add_offsets(
        self,
        answer: broker_pb2.TopicOffsets,
        group: str,
        log_end: int | None,
        hidden: Sequence[int],
    ) -> None:
        offsets, topic = self._offsets, answer.topic
        try:
            answer.topic_epoch = offsets.epoch_of(topic)
            async for queues in offsets.query(topic, group, log_end):
                answer.queues.extend(queues)
            async for queues in offsets.query_hidden(topic, hidden, group, log_end):
                answer.hidden_queues.extend(queues)
            answer.status.CopyFrom(status.success())
        except BrokerError as error:
            answer.status.CopyFrom(status.failure(error))

    async def search_offsets(
        self, request: broker_pb2.SearchOffsetsRequest
    ) -> broker_pb2.SearchOffsetsResponse:
        """Returns offsets by time: of the first queues, as many as fit the work time."""
        self._store.check_id(request.store_id)
        return await self._offsets.search(request)

    async def query_consumer_offsets(
        self, request: broker_pb2.QueryConsumerOffsetsRequest
    ) -> broker_pb2.QueryConsumerOffsetsResponse:
        """Returns a status for each queue, so a queue without an offset does not fail the call."""
        group = request.consumer_group
        queues = [QueueKey(entry.topic, entry.queue_id) for entry in request.queues]
        found = await self._offsets.consumer_offsets(
            group, queues, set_zero_if_not_found=request.set_zero_if_not_found
        )
        return broker_pb2.QueryConsumerOffsetsResponse(
            offsets=[
                broker_pb2.ConsumerOffset(status=status.success(), offset=offset)
                if offset is not None
                else broker_pb2.ConsumerOffset(
                    status=status.failure(OffsetNotFoundError(group, *queue)), offset=-1
                )
                for queue, offset in zip(queues, found, strict=True)
            ],
        )

    async def commit_offsets(self, request: broker_pb2.CommitOffsetsRequest) -> None:
        """Commits all offsets or none."""
        self._store.check_id(request.store_id)
        wanted = [
            CommittedOffset(QueueKey(entry.topic, entry.queue_id), entry.offset, entry.topic_epoch)
            for entry in request.offsets
        ]
        report = request.spark_report if request.HasField("spark_report") else None
        await self._offsets.commit(request.consumer_group, wanted, report)

    async def recall_message(
        self, request: broker_pb2.RecallMessageRequest
    ) -> broker_pb2.RecallMessageResponse:
        """Cancels a message that waits for its delivery time."""
        msg_id = await self._recall.recall(request.topic, request.recall_handle)
        return broker_pb2.RecallMessageResponse(msg_id=msg_id)

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name; Pull has a serializer of its own."""
        methods: dict[str, Callable[..., Any]] = {
            "CheckFilter": self.check_filter,
            "RecallMessage": self.recall_message,
            "SearchOffsets": self.search_offsets,
            "QueryConsumerOffsets": self.query_consumer_offsets,
            "CommitOffsets": self.commit_offsets,
        }
        return {
            "Append": grpc.stream_stream_rpc_method_handler(
                self.append,
                request_deserializer=decoder_of_large(broker_pb2.AppendRequest, bytes_max),
                response_serializer=broker_pb2.AppendResponse.SerializeToString,
            ),
            "Pull": grpc.unary_stream_rpc_method_handler(
                self.pull,
                request_deserializer=decoder(broker_pb2.PullRequest, bytes_max),
                response_serializer=serialize,
            ),
            **all_bounded(broker_pb2, {"QueryOffsets": self.query_offsets}, OFFSET_QUERY_BYTES_MAX),
            **all_bounded(broker_pb2, methods, bytes_max),
        }


def _pull_request(request: broker_pb2.PullRequest) -> PullRequest:
    return PullRequest(
        QueueKey(request.topic, request.queue_id),
        request.offset,
        request.offset_end,
        request.response_bytes_max,
        request.wait_ms_max,
        FilterText(request.expression_type, request.expression, request.tags_codes),
        request.consumer_group,
        request.commit_offset if request.HasField("commit_offset") else None,
        request.registered_subscription,
        request.sub_version,
        request.class_filter,
        request.topic_epoch,
        request.recovery_id,
    )


def _pull_response(answer: PullAnswer) -> PullResponseParts:
    result = answer.result
    head = broker_pb2.PullResponse(
        status=common_pb2.Status(code=answer.code),
        pull_status=cast("broker_pb2.PullStatus", int(result.status)),
        next_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        suggested_broker_id=answer.suggested_broker_id,
        record_sizes=result.sizes.astype(">i4").tobytes(),
    )
    return PullResponseParts(head, result.parts)
