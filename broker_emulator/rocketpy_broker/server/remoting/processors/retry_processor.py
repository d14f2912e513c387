"""Messages that RocketMQ's consumers send back.

Source: AbstractSendMessageProcessor#consumerSendMsgBack, docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.retry.service import SendBackService
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.remoting.headers.sends import ConsumerSendMsgBackRequest
from rocketpy_proto.rocketpy.v1 import retry_pb2


class RetryProcessor:
    """The processor of send-backs."""

    def __init__(self, send_backs: SendBackService) -> None:
        self._send_backs = send_backs

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processor."""
        return {Code.CONSUMER_SEND_MSG_BACK: self._send_back}

    async def _send_back(self, request: Request) -> RemotingCommand:
        header: ConsumerSendMsgBackRequest = request.header
        message = retry_pb2.MessageToSendBack(
            commit_log_offset=header.offset,
            delay_level=header.delay_level,
            origin_msg_id=header.origin_msg_id or "",
            origin_topic=header.origin_topic or "",
        )
        times_max = header.max_reconsume_times
        # RocketMQ compares a negative maximum, too: each message is above it.
        times_max = None if times_max is None else max(times_max, 0)
        (outcome,) = await self._send_backs.send_back(
            header.group, [message], times_max, unit_mode=header.is_unit_mode
        )
        if isinstance(outcome, BrokerError):
            raise outcome
        return request.answer()
