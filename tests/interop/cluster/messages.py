"""Sends, pulls and offsets over a bare connection, by our remoting and record codecs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_proto.record import Record, RecordBlock, decode_record
from rocketpy_proto.record.compression import inflate
from rocketpy_proto.record.properties import encode_properties
from rocketpy_proto.record.sys_flag import COMPRESSED, COMPRESSION_ZLIB
from rocketpy_proto.remoting import BatchMessage, RequestCode, encode_batch
from rocketpy_proto.remoting.headers.offsets import (
    GetMaxOffsetRequest,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketpy_proto.remoting.headers.pulls import SUBSCRIPTION, PullMessageRequest
from rocketpy_proto.remoting.headers.sends import SendMessageRequest, SendMessageResponse
from tests.interop.cluster.connection import Answer, Connection
from tests.interop.cluster.processes import until

GROUP = "cluster-tests"
MESSAGES_MAX = 32
_ZLIB_LEVEL = 5


@dataclass(frozen=True)
class Queue:
    """A queue that messages are sent to and pulled from."""

    topic: str
    queue_id: int = 0


@dataclass(frozen=True)
class Outgoing:
    """A message to send; `sys_flag` marks what is already done to its body."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    sys_flag: int = 0
    flag: int = 0

    @classmethod
    def compressed(cls, body: bytes) -> Outgoing:
        """Returns a message with a body compressed as the Java client does it."""
        return cls(zlib.compress(body, _ZLIB_LEVEL), sys_flag=COMPRESSED | COMPRESSION_ZLIB)

    def header(self, queue: Queue, *, is_batch: bool = False) -> SendMessageRequest:
        """Returns the header of its send request."""
        return SendMessageRequest(
            producer_group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            born_ms=SystemClock().now_ms(),
            sys_flag=self.sys_flag,
            flag=self.flag,
            properties=encode_properties(self.properties).decode() or None,
            is_batch=is_batch,
        )


def send(connection: Connection, queue: Queue, message: Outgoing) -> Answer:
    """Sends one message; returns any answer."""
    return connection.ask(RequestCode.SEND_MESSAGE_V2, message.header(queue), message.body)


def send_batch(connection: Connection, queue: Queue, messages: Sequence[BatchMessage]) -> Answer:
    """Sends messages as one batch; returns any answer."""
    header = Outgoing(b"").header(queue, is_batch=True)
    return connection.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))


def put(connection: Connection, queue: Queue, message: Outgoing) -> SendMessageResponse:
    """Sends one message, asserts that it is stored, and waits until it can be pulled.

    A broker answers a send before its queue has the message.
    """
    header: SendMessageResponse = send(connection, queue, message).ok().header
    until_pullable(connection, queue, header.queue_offset)
    return header


def put_batch(
    connection: Connection, queue: Queue, messages: Sequence[BatchMessage]
) -> SendMessageResponse:
    """Sends messages as one batch, asserts that they are stored, and waits as `put` does."""
    header: SendMessageResponse = send_batch(connection, queue, messages).ok().header
    until_pullable(connection, queue, header.queue_offset + len(messages) - 1)
    return header


def until_pullable(connection: Connection, queue: Queue, offset: int) -> None:
    """Waits until a queue has passed an offset."""
    until(lambda: max_offset(connection, queue) > offset, f"offset {offset} of {queue}", [])


def pull(connection: Connection, queue: Queue, offset: int = 0, subscription: str = "*") -> Answer:
    """Pulls once, without waiting for messages; returns any answer."""
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=MESSAGES_MAX,
        sys_flag=SUBSCRIPTION,
        subscription=subscription,
    )
    return connection.ask(RequestCode.PULL_MESSAGE, header)


def records_of(answer: Answer) -> list[Record]:
    """Returns the records of a pull that found some, bodies as stored; checks their CRCs."""
    block = RecordBlock.parse(bytes(answer.ok().command.body))
    block.verify_body_crc()
    data = bytes(answer.command.body)
    return [decode_record(data, position).record for position in block.positions.tolist()]


def body_of(record: Record) -> bytes:
    """Returns the body that the producer sent."""
    is_compressed = record.sys_flag & COMPRESSED
    return inflate(record.body, record.sys_flag) if is_compressed else record.body


def read_all(connection: Connection, queue: Queue) -> list[Record]:
    """Returns every record of a queue."""
    offset, end = min_offset(connection, queue), max_offset(connection, queue)
    records: list[Record] = []
    while offset < end:
        answer = pull(connection, queue, offset)
        records += records_of(answer)
        offset = answer.header.next_begin_offset
    return records


def bodies(connection: Connection, queue: Queue) -> list[bytes]:
    """Returns every body of a queue, inflated."""
    return [body_of(record) for record in read_all(connection, queue)]


def max_offset(connection: Connection, queue: Queue) -> int:
    """Returns the offset of the next message."""
    header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
    return int(connection.ask(RequestCode.GET_MAX_OFFSET, header).ok().header.offset)


def min_offset(connection: Connection, queue: Queue) -> int:
    """Returns the offset of the oldest message."""
    header = QueueRequest(topic=queue.topic, queue_id=queue.queue_id)
    return int(connection.ask(RequestCode.GET_MIN_OFFSET, header).ok().header.offset)


def offset_by_time(
    connection: Connection, queue: Queue, store_ms: int, boundary_type: str | None = None
) -> int:
    """Returns a queue's offset at a store time."""
    header = SearchOffsetRequest(
        topic=queue.topic,
        queue_id=queue.queue_id,
        store_ms=store_ms,
        boundary_type=boundary_type,
    )
    return int(connection.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header).ok().header.offset)


def commit(connection: Connection, group: str, queue: Queue, offset: int) -> Answer:
    """Commits an offset; returns any answer."""
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    return connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def committed(connection: Connection, group: str, queue: Queue) -> Answer:
    """Returns a group's committed offset; without one, new brokers answer QUERY_NOT_FOUND."""
    header = QueryConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        is_zero_if_not_found=False,
    )
    return connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
