"""The servicer of rocketpy.v1.Retry."""

from __future__ import annotations

from typing import Any

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.services.retry.service import Outcome, SendBackService, SentBackTo
from rocketpy_proto.rocketpy.v1 import retry_pb2

_SENT_BACK_TO = {
    SentBackTo.RETRY: retry_pb2.RETRY,
    SentBackTo.DEAD_LETTER: retry_pb2.DEAD_LETTER,
    SentBackTo.DROPPED: retry_pb2.DROPPED,
}


class RetryServicer:
    """The method for messages that consumers send back."""

    def __init__(self, send_backs: SendBackService) -> None:
        self._send_backs = send_backs

    async def send_back(self, request: retry_pb2.SendBackRequest) -> retry_pb2.SendBackResponse:
        """Sends messages back; returns a status for each of the first messages of the request."""
        is_given = request.HasField("max_reconsume_times")
        times_max = request.max_reconsume_times if is_given else None
        outcomes = await self._send_backs.send_back(
            request.consumer_group, request.messages, times_max
        )
        return retry_pb2.SendBackResponse(messages=[_message(outcome) for outcome in outcomes])

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handler by method name."""
        return all_bounded(retry_pb2, {"SendBack": self.send_back}, bytes_max)


def _message(outcome: Outcome) -> retry_pb2.SentBackMessage:
    if isinstance(outcome, BrokerError):
        return retry_pb2.SentBackMessage(status=status.failure(outcome))
    return retry_pb2.SentBackMessage(status=status.success(), to=_SENT_BACK_TO[outcome])
