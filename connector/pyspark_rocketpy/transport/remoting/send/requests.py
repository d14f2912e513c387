"""Requests of a writer to brokers: a message, or a batch.

A request without an answer may have been done; a repetition would store a second message. So
nothing is repeated here.

Source: docs/design/remoting.md sections 2.4 and 3.2, docs/design/cluster.md section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark_rocketpy import clock
from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import Call, Request
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import header_of
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.offsets import GetMaxOffsetRequest
from rocketpy_proto.remoting.headers.sends import SendMessageRequest, SendMessageResponse

# The producer group of all sends. It has no transactions, so brokers never send it a check.
PRODUCER_GROUP = "rocketpy-sink"
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
class SendBatch:
    """Messages of one queue that are all stored at consecutive offsets, or none.

    `body` is a batch's body, or that of a single message, which has `properties` in RocketMQ's text
    form. One that `is_delayed` waits at its broker, in no queue of its topic.
    """

    body: bytes | memoryview
    count: int
    properties: str | None = None
    flag: int = 0
    is_movable: bool = False
    is_delayed: bool = False


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
    cluster: Cluster, queue: MessageQueue, send_batch: SendBatch, timeouts: Timeouts
) -> Call[SendResult]:
    """Sends messages to be stored."""
    is_batch = send_batch.properties is None
    header = SendMessageRequest(
        PRODUCER_GROUP,
        queue.topic,
        queue.queue_id,
        clock.now_ms(),
        flag=send_batch.flag,
        # A broker appends the properties of a batch to the properties of each message. They win.
        properties=send_batch.properties or "",
        is_batch=is_batch,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    read = partial(_sent, code)
    request = Request(code, read, header, send_batch.body, accepted=_STORED, timeouts=timeouts)
    return cluster.ask_owner(queue.topic, queue.broker_name, request)


def _sent(code: RequestCode, peer: Peer, answer: RemotingCommand) -> SendResult:
    header = header_of(peer, code, answer, SendMessageResponse)
    return SendResult(
        ResponseCode(answer.code),
        header.queue_id,
        header.queue_offset,
        tuple(header.msg_id.split(",")),
    )


def broker_version(cluster: Cluster, topic: str, broker_name: str) -> Call[int]:
    """Returns the number of a master's RocketMQ version, such as 413 for 5.0.0.

    Every answer has it. The request is for a queue's end, which a client that may write the topic
    may query.
    """
    header = GetMaxOffsetRequest(topic, 0, broker_name=broker_name)
    request = Request(RequestCode.GET_MAX_OFFSET, _version, header)
    return cluster.ask_owner(topic, broker_name, request)


def _version(_peer: Peer, answer: RemotingCommand) -> int:
    return answer.version
