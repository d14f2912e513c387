"""Replies of request-reply messages, which the broker sends on to the requester.

A property of the reply names the requester's client. The reply is stored first, as RocketMQ's
brokers do by default. Its sender gets an error if the requester did not take it.
Source: ReplyMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.remoting.clients import RemotingClients
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.properties import decode_properties
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand
from rocketpy_proto.remoting.headers.sends import PushReplyMessageRequest, SendMessageRequest

REPLY_TO_CLIENT, PUSH_REPLY_TIME = "REPLY_TO_CLIENT", "PUSH_REPLY_TIME"
_END = "\x02"


class ReplyError(BrokerError):
    """A reply that its requester has not taken; it may be stored."""


class ReplyProcessor:
    """The processor of replies; `store_reply` is the processor of sends."""

    def __init__(
        self,
        store_reply: Callable[[Request], Awaitable[RemotingCommand]],
        remote: RemotingClients,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._store_reply = store_reply
        self._remote = remote
        self._store = store
        self._clock = clock

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {Code.SEND_REPLY_MESSAGE: self._reply, Code.SEND_REPLY_MESSAGE_V2: self._reply}

    async def _reply(self, request: Request) -> RemotingCommand:
        answer = await self._store_reply(request)
        await self._push(request)
        return answer

    async def _push(self, request: Request) -> None:
        """Sends a reply to its requester. Raises ReplyError."""
        header: SendMessageRequest = request.header
        properties = header.properties or ""
        client_id = decode_properties(properties.encode()).get(REPLY_TO_CLIENT)
        if client_id is None:
            raise ReplyError(
                f"reply message properties[{REPLY_TO_CLIENT}] is null; reply to a request's message"
            )
        now_ms = self._clock.now_ms()
        closing = "" if properties.endswith(_END) else _END
        fields = msgspec.structs.asdict(header) | {
            "properties": f"{properties}{closing}{PUSH_REPLY_TIME}\x01{now_ms}{_END}",
            "max_reconsume_times": None,
            "broker_name": None,
        }
        pushed = PushReplyMessageRequest(
            **fields,
            born_host=str(request.connection.peer_host),
            store_host=str(self._store.store_host),
            store_ms=now_ms,
        )
        code = Code.PUSH_REPLY_MESSAGE_TO_CLIENT
        ext_fields = EXCHANGES[code].request.encode(pushed)
        command = RemotingCommand(code, 0, ext_fields=ext_fields, body=request.command.body)
        try:
            answer = await self._remote.ask(client_id, command)
        except BrokerError as error:
            reason = error.remark
        else:
            if answer.code == ResponseCode.SUCCESS:
                return
            reason = f"it answered {answer.code}, {answer.remark or ''}"
        raise ReplyError(f"push reply message to {client_id:.300} fail: {reason}")
