"""Sends of messages whose JSON is as in a line of `rocketpy message send --file`."""

from __future__ import annotations

import json

import numpy as np

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.messages.json_form import json_of_sent
from rocketpy_broker.messages.json_input import json_message
from rocketpy_broker.messages.outgoing import (
    MessageRules,
    OutgoingMessage,
    SentMessage,
    block_columns,
)
from rocketpy_broker.server.http.api.calls import Caller, InnerCalls
from rocketpy_broker.server.http.api.routes import SEND
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.record import encode_block
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

_INT_MAX = (1 << 31) - 1
# The broker itself checks queues and sizes.
_NO_LIMITS = admin_pb2.GetBrokerInfoResponse(body_bytes_max=_INT_MAX)


async def send(calls: InnerCalls, caller: Caller, topic: str, body: bytes, now_ms: int) -> bytes:
    """Sends the message of a body; returns its place as JSON. Raises BrokerError."""
    try:
        message = json_message(body)
    except ValueError as error:
        raise ParameterIllegalError("body", str(error), "the JSON of a message") from error
    fault = MessageRules(topic, _INT_MAX, _NO_LIMITS).fault(message)
    if fault is not None:
        raise ParameterIllegalError("body", fault, "the JSON of a message")
    sent = await _sent(calls, caller, topic, message, now_ms)
    return json.dumps({"topic": topic, **json_of_sent(sent)}).encode()


async def _sent(
    calls: InnerCalls, caller: Caller, topic: str, message: OutgoingMessage, now_ms: int
) -> SentMessage:
    columns, msg_ids = block_columns(topic, [message], now_ms)
    block = encode_block(columns)
    request = broker_pb2.AppendRequest(
        topic=topic,
        queue_id=ANY_QUEUE if message.queue_id is None else message.queue_id,
        record_sizes=block.sizes.astype(np.dtype(">i4")).tobytes(),
        records=block.data.to_pybytes(),
    )
    answer: broker_pb2.AppendResponse = await calls.call(caller, SEND, request)
    offset = None if answer.is_delayed else answer.queue_offset
    return SentMessage(msg_ids[0], answer.queue_id, offset)
