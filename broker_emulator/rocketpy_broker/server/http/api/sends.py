"""Sends of messages, and repeated sends of dead letters.

A message's JSON is that of a line of `rocketpy message send --file`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from rocketpy_broker.errors import BrokerError, MessageNotExistError
from rocketpy_broker.messages.copies import (
    TopicRules,
    producer_group,
    properties_of_copy,
    topic_of_copy,
)
from rocketpy_broker.messages.json_form import json_of_sent
from rocketpy_broker.messages.json_input import json_message
from rocketpy_broker.messages.outgoing_message import (
    MessageRules,
    OutgoingMessage,
    SentMessage,
    append_request,
)
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.server.http.api.calls import HttpCaller, InnerCalls
from rocketpy_broker.server.http.api.requests import json_object
from rocketpy_proto.model import MESSAGE_TYPE, TRANSACTION
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_record
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2, transactions_pb2
from rocketpy_proto.texts import is_unicode

_INT_MAX = (1 << 31) - 1
# The broker itself checks queues and sizes.
_NO_LIMITS = admin_pb2.GetBrokerInfoResponse(body_bytes_max=_INT_MAX)


class MessageJsonError(BrokerError):
    """A body that is no message in JSON; nothing was sent."""

    code = ResponseCode.INVALID_PARAMETER


@dataclass(frozen=True, slots=True)
class ApiSender:
    """The sends of one request, which comes at `now_ms`. Its methods raise BrokerError."""

    calls: InnerCalls
    caller: HttpCaller
    now_ms: int

    async def message(self, topic: str, body: bytes) -> bytes:
        """Sends the message of a body; returns its place as JSON."""
        try:
            message = json_message(body)
        except ValueError as error:
            raise MessageJsonError(f"illegal message: {error}") from error
        return _json(topic, await self.send(topic, message))

    async def send(
        self, topic: str, message: OutgoingMessage, producers: str = "", *, is_open: bool = False
    ) -> SentMessage:
        """Sends a message; with a producer group, in a transaction, which may stay open."""
        check_message(topic, message)
        request, msg_id = append_request(topic, message, self.now_ms, producers)
        if producers and not is_open:
            return await self._commit(request, msg_id, producers)
        return await self._append(request, msg_id)

    async def dead_letter(
        self, group: str, asked: broker_pb2.PullRequest, to: str | None = None
    ) -> bytes:
        """Sends a dead letter to a topic, or that of its first send; returns the copy's place."""
        letter = await self.letter(group, asked)
        topic = to or topic_of_copy(letter, group)
        return _json(topic, await self.copy(topic, letter))

    async def letter(self, group: str, asked: broker_pb2.PullRequest) -> Message:
        """Returns the dead letter of a group at the offset of a request."""
        pulled = await self.calls.call(self.caller, "Broker/Pull", asked)
        if not pulled.record_sizes:
            reason = f"group {group!r} has no dead letter at this offset"
            raise MessageNotExistError(str(asked.offset), reason)
        return Message.of(decode_record(pulled.records).record)

    async def copy(self, topic: str, letter: Message) -> SentMessage:
        """Sends a copy of a dead letter to a topic, as the topic's message type requires."""
        rules = await self._rules(topic)
        is_transaction = rules.message_type == TRANSACTION
        producers = producer_group(letter) if is_transaction else ""

        def encoded() -> tuple[broker_pb2.AppendRequest, str]:
            copy = rules.copy(letter, properties_of_copy(letter))
            return append_request(topic, copy, self.now_ms, producers)

        # A long body takes time, and more if it is compressed.
        request, msg_id = await asyncio.to_thread(encoded)
        if is_transaction:
            sent = await self._commit(request, msg_id, producers)
        else:
            sent = await self._append(request, msg_id)
        self.calls.resends.add(letter.commit_log_offset, self.now_ms)
        return sent

    async def _rules(self, topic: str) -> TopicRules:
        request = admin_pb2.ListTopicsRequest(topics=[topic])
        answer = await self.calls.call(self.caller, "Admin/ListTopics", request)
        (config,) = answer.configs
        return TopicRules(config.attributes.get(MESSAGE_TYPE), config.write_queue_nums)

    async def _append(self, request: broker_pb2.AppendRequest, msg_id: str) -> SentMessage:
        answer = await self.calls.call(self.caller, "Broker/Append", request)
        offset = None if answer.is_delayed else answer.queue_offset
        return SentMessage(msg_id, answer.queue_id, offset)

    async def _commit(
        self, request: broker_pb2.AppendRequest, msg_id: str, producers: str
    ) -> SentMessage:
        half = await self.calls.call(self.caller, "Broker/Append", request)
        end = transactions_pb2.EndTransactionRequest(
            producer_group=producers,
            transaction_id=msg_id,
            commit_log_offset=half.physical_offset,
            queue_offset=half.queue_offset,
            resolution=transactions_pb2.COMMIT,
        )
        await self.calls.call(self.caller, "Transactions/EndTransaction", end)
        return SentMessage(msg_id, half.queue_id, None)


def check_message(topic: str, message: OutgoingMessage) -> None:
    """Raises MessageJsonError for a message that cannot be sent to a topic."""
    fault = MessageRules(topic, _INT_MAX, _NO_LIMITS).fault(message)
    if fault is not None:
        raise MessageJsonError(f"illegal message: {fault}")


def target_of(body: bytes) -> str | None:
    """Returns the topic of a body `{"topic": …}`; None without one. Raises MessageJsonError."""
    given = json_object(body)
    topic = given.pop("topic", None)
    if given or not (topic is None or (isinstance(topic, str) and topic and is_unicode(topic))):
        raise MessageJsonError('illegal body: it may have a "topic", and nothing else')
    return topic


def _json(topic: str, sent: SentMessage) -> bytes:
    return json.dumps({"topic": topic, **json_of_sent(sent)}).encode()
