"""Requests of a writer to brokers: a message, or a batch.

A request without an answer may have been done; a repetition would store a second message. So
nothing is repeated here.

Source: docs/design/remoting.md sections 2.4 and 3.2, docs/design/cluster.md section 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyspark_rocketpy import clock
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import Call, Request
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import header_of
from rocketpy_proto.remoting import (
    BatchMessage,
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    UnencodableRemotingError,
    encode_batch,
)
from rocketpy_proto.remoting.headers.sends import SendMessageRequest, SendMessageResponse

# The answer names an id for each message; see HEADER_BYTES_MAX of the connection.
BATCH_MESSAGES_MAX = 10_000
# The message is stored with all these codes. All but the first mean less safety than the broker's
# settings require.
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to store; `properties` is RocketMQ's text form, `sys_flag` includes compression."""

    body: bytes | memoryview
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class SendResult:
    """Position of stored messages: the first one's offset, and an id for each.

    A code other than SUCCESS means that they are not yet as safe as the broker's settings require.
    """

    code: ResponseCode
    queue_id: int
    queue_offset: int
    msg_ids: tuple[str, ...]


def send(
    cluster: Cluster, group: str, queue: MessageQueue, message: Message, patience: Timeouts
) -> Call[SendResult]:
    """Sends one message to be stored."""
    header = SendMessageRequest(
        group,
        queue.topic,
        queue.queue_id,
        clock.now_ms(),
        message.sys_flag,
        message.flag,
        properties=message.properties,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_MESSAGE_V2
    return _send(cluster, queue, _request(code, header, message.body, patience))


def send_batch(
    cluster: Cluster,
    group: str,
    queue: MessageQueue,
    messages: Sequence[BatchMessage],
    patience: Timeouts,
) -> Call[SendResult]:
    """Sends messages to be stored at consecutive offsets, all or none.

    At most BATCH_MESSAGES_MAX, none with an empty body; brokers take 4 MiB of them. Raises
    UnencodableRemotingError.
    """
    if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
        raise UnencodableRemotingError(
            "batch", f"it has {len(messages)} messages, 1 to {BATCH_MESSAGES_MAX} are sent"
        )
    return send_encoded_batch(cluster, group, queue, encode_batch(messages), patience)


def send_encoded_batch(
    cluster: Cluster,
    group: str,
    queue: MessageQueue,
    body: bytes | memoryview,
    patience: Timeouts,
) -> Call[SendResult]:
    """Sends messages as `send_batch` does, already encoded as a batch's body."""
    header = SendMessageRequest(
        group,
        queue.topic,
        queue.queue_id,
        clock.now_ms(),
        is_batch=True,
        # The broker adds these to each message; a key of the batch replaces the message's.
        properties="",
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_BATCH_MESSAGE
    return _send(cluster, queue, _request(code, header, body, patience))


def _request(
    code: RequestCode, header: SendMessageRequest, body: bytes | memoryview, patience: Timeouts
) -> Request[SendResult]:
    return Request(code, partial(_sent, code), header, body, accepted=_STORED, patience=patience)


def _send(cluster: Cluster, queue: MessageQueue, request: Request[SendResult]) -> Call[SendResult]:
    return cluster.ask_owner(queue.topic, queue.broker_name, request)


def _sent(code: RequestCode, peer: Peer, answer: RemotingCommand) -> SendResult:
    header = header_of(peer, code, answer, SendMessageResponse)
    return SendResult(
        ResponseCode(answer.code),
        header.queue_id,
        header.queue_offset,
        tuple(header.msg_id.split(",")),
    )
