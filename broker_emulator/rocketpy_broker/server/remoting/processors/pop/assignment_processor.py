"""Assignments of queues by the broker, and message request modes.

Source: QueryAssignmentProcessor, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.tables import encode_large
from rocketpy_broker.services.receipts.assignment.modes import (
    MessageRequestMode,
    MessageRequestModes,
)
from rocketpy_broker.services.receipts.assignment.service import AVERAGELY, AssignmentService
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.consumers import MessageModel
from rocketpy_proto.remoting import MessageQueue, RemotingCommand
from rocketpy_proto.remoting.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeBody,
)

# A client without assignments keeps its queues; an empty list would take them away.
KEEP_QUEUES = b"{}"


class AssignmentProcessor:
    """The processor of assignments."""

    def __init__(
        self, assignments: AssignmentService, modes: MessageRequestModes, limits: ClientLimits
    ) -> None:
        self._assignments = assignments
        self._modes = modes
        self._bytes_max = limits.request_bytes_max

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {Code.QUERY_ASSIGNMENT: self._query, Code.SET_MESSAGE_REQUEST_MODE: self._set_mode}

    async def _query(self, request: Request) -> RemotingCommand:
        body: QueryAssignmentRequestBody = await request.bounded_body(self._bytes_max)
        found = self._assignments.assign(
            *(body.topic, body.consumer_group, body.client_id),
            body.strategy_name or AVERAGELY,
            is_broadcasting=body.message_model is MessageModel.BROADCASTING,
        )
        if found is None:
            return request.answer(body=KEEP_QUEUES)
        broker_name = self._assignments.broker_name
        queues = [MessageQueue(broker_name, each, body.topic) for each in found.queue_ids]
        assigned = tuple(MessageQueueAssignment(each, found.mode) for each in queues)
        return request.answer(body=await encode_large(QueryAssignmentResponseBody(assigned)))

    async def _set_mode(self, request: Request) -> RemotingCommand:
        body: SetMessageRequestModeBody = await request.bounded_body(self._bytes_max)
        mode = MessageRequestMode(body.mode, body.share_count)
        await self._modes.set(body.topic, body.consumer_group, mode)
        return request.answer()
