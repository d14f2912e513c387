"""What a writer asks of brokers: to store one message, or a batch of one queue. Holds no state.

A request whose answer is lost may have been done; sent again, it is a second message. So nothing is
repeated here. Source: docs/design/remoting.md sections 2.4 and 3.2, docs/design/cluster.md section 2.3.
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

# The answer names an id for each; see HEADER_BYTES_MAX of the connection.
BATCH_MESSAGES_MAX = 10_000
# Stored in all these cases; but for the first, not as safely as the broker's settings ask for.
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
    """A message to store; `properties` is RocketMQ's text of them, `sys_flag` tells compression."""

    body: bytes | memoryview
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where messages were stored: the offset is the first one's, and there is an id for each.

    A code other than SUCCESS tells that they are not yet as safe as the broker's settings ask for.
    """

    code: ResponseCode
    queue_id: int
    queue_offset: int
    msg_ids: tuple[str, ...]


def send(
    cluster: Cluster, group: str, queue: MessageQueue, message: Message, patience: Timeouts
) -> Call[SendResult]:
    """Stores one message."""
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
    """Stores all of the messages, at offsets that follow each other, or none.

    At most BATCH_MESSAGES_MAX, none with an empty body; brokers take 4 MiB of them.
    Raises UnencodableRemotingError.
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
    """Returns the same for messages that are a batch's body already."""
    header = SendMessageRequest(
        group,
        queue.topic,
        queue.queue_id,
        clock.now_ms(),
        is_batch=True,
        # The broker adds these to each message, a key of the batch in place of the message's.
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
