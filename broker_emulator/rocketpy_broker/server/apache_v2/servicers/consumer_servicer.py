"""Servicer of consumers: receives, acknowledgements, invisible times, dead letters.

The stream of a receive has the status, a response for each message, and the delivery time. Messages
that a disconnected client has not received are visible again after a second.
Source: ReceiveMessageActivity, AckMessageActivity, ChangeInvisibleDurationActivity,
ForwardMessageToDLQActivity, docs/design/grpc_v2_semantics.md sections 8 and 9.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.clients import ApacheClients
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.receives.message_mapper import MessageMapper
from rocketpy_broker.server.apache_v2.receives.requests import (
    TEXT_FACTOR,
    filter_text,
    group_and_topic,
    milliseconds,
    receive_wait_ms,
)
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.call_memory import keep
from rocketpy_broker.services.deliveries.handles import HandleInvalidError
from rocketpy_broker.services.deliveries.renewals import RENEWED_MS
from rocketpy_broker.services.deliveries.service import Delivery, DeliveryService
from rocketpy_broker.services.pull.response_buffer import ResponseBufferLimiter
from rocketpy_broker.services.receipts.popped import ANY_QUEUE, COUNT_MAX, PopRequest
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2

INVISIBLE_MS_MIN, INVISIBLE_MS_MAX = 10_000, 12 * 3_600_000
ENTRIES_MAX = 1_000
_Response = service_pb2.ReceiveMessageResponse


class ConsumerServicer:
    """The methods for deliveries by receipt handle."""

    def __init__(
        self,
        deliveries: DeliveryService,
        clients: ApacheClients,
        unread: ResponseBufferLimiter,
        clock: Clock,
    ) -> None:
        self._deliveries = deliveries
        self._clients = clients
        self._unread = unread
        self._clock = clock
        self._mapper = MessageMapper(clock)

    def methods(self) -> Methods:
        """Returns the functions of the methods by name."""
        return {
            "ReceiveMessage": self.receive,
            "AckMessage": self.ack,
            "ChangeInvisibleDuration": self.change,
            "ForwardMessageToDeadLetterQueue": self.forward,
        }

    async def receive(
        self, request: service_pb2.ReceiveMessageRequest, caller: RequestContext
    ) -> AsyncIterator[service_pb2.ReceiveMessageResponse]:
        """Yields the status, the messages and the delivery time."""
        topic = v2.Resource()
        topic.CopyFrom(request.message_queue.topic)
        try:
            caller.check_client_id()
            wanted, is_renewed = self._pop_request(request, caller), request.auto_renew
            # A held call does not keep its request.
            del request
            keep(TEXT_FACTOR * len(wanted.filter_text.expression))
            # A refusal after the pop would cost each message an attempt.
            with self._unread.reserve(0):
                pass
            deliveries = await self._deliveries.receive(
                wanted, caller.client_id, is_renewed=is_renewed
            )
            with self._released_unless_sent(deliveries) as left:
                yield _Response(status=status.success() if left else _no_message())
                while left:
                    message = await self._message(left[0], topic)
                    if message is not None:
                        yield _Response(message=message)
                    left.popleft()
        except BrokerError as error:
            yield _Response(status=status.failure(error))
        response = _Response()
        response.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        yield response

    def _pop_request(
        self, request: service_pb2.ReceiveMessageRequest, caller: RequestContext
    ) -> PopRequest:
        group, topic = group_and_topic(caller, request.group, request.message_queue.topic)
        known = self._clients.get(caller.client_id)
        timeout_ms = None if known is None else known.long_polling_ms
        if request.HasField("long_polling_timeout"):
            timeout_ms = milliseconds(request.long_polling_timeout)
        return PopRequest(
            group,
            topic,
            max(request.message_queue.id, ANY_QUEUE),
            min(max(request.batch_size, 1), COUNT_MAX),
            _invisible_ms(request),
            receive_wait_ms(timeout_ms, caller),
            filter_text(request.filter_expression),
            attempt_id=request.attempt_id,
        )

    @contextlib.contextmanager
    def _released_unless_sent(self, deliveries: Sequence[Delivery]) -> Iterator[deque[Delivery]]:
        """Yields the deliveries, from which the block removes the ones that the client has.

        The other deliveries are visible again after a second. Raises ResponseBufferFullError.
        """
        left = deque(deliveries)
        try:
            with self._unread.reserve(sum(each.byte_count for each in deliveries)):
                yield left
        finally:
            if left:
                # A cancelled call cannot wait, so a task releases them. Their bytes are free now.
                handles = [each.handle for each in left]
                self._deliveries.release(left[0].group, left[0].topic, handles)

    async def _message(self, delivery: Delivery, topic: v2.Resource) -> v2.Message | None:
        """Returns the message of a delivery; None for a damaged record, which comes again."""
        message = await self._mapper.message(delivery.block, delivery.row, topic)
        if message is not None:
            message.system_properties.receipt_handle = delivery.handle
            message.system_properties.delivery_attempt = delivery.attempt
        return message

    async def ack(
        self, request: service_pb2.AckMessageRequest, caller: RequestContext
    ) -> service_pb2.AckMessageResponse:
        """Acknowledges messages; an entry for each has its result."""
        caller.check_client_id()
        group, topic = group_and_topic(caller, request.group, request.topic)
        if not 1 <= len(request.entries) <= ENTRIES_MAX:
            accepted = f"1 to {ENTRIES_MAX}"
            raise ParameterIllegalError("number of entries", len(request.entries), accepted)
        handles = [each.receipt_handle for each in request.entries]
        errors = await self._deliveries.ack(group, topic, handles, caller.client_id)
        statuses = [status.success() if each is None else failure(each) for each in errors]
        response = service_pb2.AckMessageResponse(status=status.common(statuses))
        for entry, result in zip(request.entries, statuses, strict=True):
            response.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=result
            )
        return response

    async def change(
        self, request: service_pb2.ChangeInvisibleDurationRequest, caller: RequestContext
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """Changes the invisible time of a message; each answer has the handle that is valid now.

        Clients keep the handle of an answer before they read its status.
        """
        response = service_pb2.ChangeInvisibleDurationResponse(
            status=status.success(), receipt_handle=request.receipt_handle
        )
        try:
            caller.check_client_id()
            group, topic = group_and_topic(caller, request.group, request.topic)
            invisible_ms = milliseconds(request.invisible_duration)
            _check_invisible_ms(invisible_ms, 0)
            response.receipt_handle = await self._deliveries.change(
                group, topic, request.receipt_handle, invisible_ms
            )
        except BrokerError as error:
            response.status.CopyFrom(failure(error))
        return response

    async def forward(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, caller: RequestContext
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """Moves a message to the dead letters of its group."""
        caller.check_client_id()
        group, topic = group_and_topic(caller, request.group, request.topic)
        response = service_pb2.ForwardMessageToDeadLetterQueueResponse()
        try:
            await self._deliveries.forward_to_dead_letters(group, topic, request.receipt_handle)
        except HandleInvalidError as error:
            response.status.CopyFrom(failure(error))
        return response


def failure(error: BrokerError) -> v2.Status:
    """Returns the status of an error; an invalid handle has a code of its own."""
    if isinstance(error, HandleInvalidError):
        return v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message=error.remark)
    return status.failure(error)


def _no_message() -> v2.Status:
    return v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")


def _invisible_ms(request: service_pb2.ReceiveMessageRequest) -> int:
    """Returns the invisible time of a receive, which is the broker's for renewed messages."""
    if request.auto_renew:
        return RENEWED_MS
    invisible_ms = milliseconds(request.invisible_duration)
    _check_invisible_ms(invisible_ms, INVISIBLE_MS_MIN)
    return invisible_ms


def _check_invisible_ms(invisible_ms: int, least_ms: int) -> None:
    """Raises StatusError for an invisible time outside the limits."""
    if not least_ms <= invisible_ms <= INVISIBLE_MS_MAX:
        raise StatusError(
            v2.ILLEGAL_INVISIBLE_TIME,
            f"the invisible duration is {invisible_ms} ms, accepted is {least_ms} to "
            f"{INVISIBLE_MS_MAX} ms",
        )
