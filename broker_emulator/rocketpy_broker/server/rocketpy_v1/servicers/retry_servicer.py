"""The servicer of rocketpy.v1.Retry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.retry.message_lookup import SendBack
from rocketpy_broker.services.retry.service import Outcome, SendBackService, SentBackTo
from rocketpy_proto.rocketpy.v1 import retry_pb2

SERVICE_NAME: str = retry_pb2.DESCRIPTOR.services_by_name["Retry"].full_name
_SENT_BACK_TO = {
    SentBackTo.RETRY: retry_pb2.RETRY,
    SentBackTo.DEAD_LETTER: retry_pb2.DEAD_LETTER,
    SentBackTo.DROPPED: retry_pb2.DROPPED,
}


@dataclass(frozen=True, slots=True)
class RetryServices:
    """The services that the retry servicer calls."""

    send_backs: SendBackService
    request_bytes_max: int


class RetryServicer:
    """The method for messages that consumers send back."""

    def __init__(self, services: RetryServices) -> None:
        self._to = services

    async def send_back(
        self, request: retry_pb2.SendBackRequest, _context: status.Context
    ) -> retry_pb2.SendBackResponse:
        """Sends messages back; returns a status for each of the first messages of the request."""
        messages = [
            SendBack(
                each.commit_log_offset, each.delay_level, each.origin_msg_id, each.origin_topic
            )
            for each in request.messages
        ]
        is_given = request.HasField("max_reconsume_times")
        times_max = request.max_reconsume_times if is_given else None
        try:
            outcomes = await self._to.send_backs.send_back(
                request.consumer_group, messages, times_max
            )
        except BrokerError as error:
            return retry_pb2.SendBackResponse(status=status.failure(error))
        return retry_pb2.SendBackResponse(
            status=status.success(), messages=[_message(outcome) for outcome in outcomes]
        )

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handler by method name."""
        return all_bounded(retry_pb2, {"SendBack": self.send_back}, self._to.request_bytes_max)


def _message(outcome: Outcome) -> retry_pb2.SentBackMessage:
    if isinstance(outcome, BrokerError):
        return retry_pb2.SentBackMessage(status=status.failure(outcome))
    return retry_pb2.SentBackMessage(status=status.success(), to=_SENT_BACK_TO[outcome])
