"""Pops, acknowledgements and changes of invisible times over a bare connection, at any broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.receipts.handle import Receipt, kind_of, real_topic
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Record
from rocketpy_proto.remoting import RequestCode, ResponseCode
from rocketpy_proto.remoting.headers.pop import (
    ANY_QUEUE,
    INIT_MIN,
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageRequest,
    PopMessageResponse,
)
from tests.interop.cluster.connection import Connection
from tests.interop.cluster.messages import Outgoing, Queue, put, records_of
from tests.interop.remoting.clients import until

MESSAGES_MAX = 32
NOTHING = {ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL}


@dataclass(frozen=True)
class Popped:
    """A delivery; `times` are the earlier ones."""

    body: str
    times: int
    receipt: Receipt


class Pops:
    """A group's pops of one topic at one broker."""

    def __init__(self, address: str, group: str, topic: str, *, is_ordered: bool = False) -> None:
        self._connection = Connection(address)
        self._group = group
        self._topic = topic
        self._is_ordered = is_ordered

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def send(self, bodies: Sequence[str]) -> None:
        """Sends messages to queue 0."""
        for each in bodies:
            put(self._connection, Queue(self._topic), Outgoing(each.encode()))

    def pop(self, invisible_ms: int) -> list[Popped]:
        """Pops once, without waiting."""
        header = PopMessageRequest(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=MESSAGES_MAX,
            invisible_ms=invisible_ms,
            poll_ms=0,
            born_ms=SystemClock().now_ms(),
            init_mode=INIT_MIN,
            is_order=self._is_ordered,
        )
        answer = self._connection.ask(RequestCode.POP_MESSAGE, header)
        if answer.code in NOTHING:
            return []
        records = records_of(answer)
        return [_popped(each, answer.header) for each in records]

    def until_popped(self, bodies: Collection[str], invisible_ms: int) -> list[Popped]:
        """Pops until each body has come, and returns all that came."""
        found: list[Popped] = []

        def is_complete() -> bool:
            found.extend(self.pop(invisible_ms))
            return {*bodies} <= {each.body for each in found}

        until(is_complete, lambda: found)
        return found

    def ack(self, message: Popped) -> None:
        """Acknowledges a message."""
        receipt, queue = message.receipt, self._queue(message)
        header = AckMessageRequest(self._group, *queue, str(receipt), receipt.offset)
        self._connection.ask(RequestCode.ACK_MESSAGE, header).ok()

    def change(self, message: Popped, invisible_ms: int) -> Popped:
        """Changes the invisible time; returns the message with its new receipt."""
        receipt, queue = message.receipt, self._queue(message)
        header = ChangeInvisibleTimeRequest(
            self._group, *queue, str(receipt), receipt.offset, invisible_ms
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        changed = self._connection.ask(code, header).ok().header
        times = replace(receipt, pop_ms=changed.pop_ms, invisible_ms=changed.invisible_ms)
        new = replace(times, start_offset=receipt.offset, revive_queue_id=changed.revive_queue_id)
        return replace(message, receipt=new)

    def _queue(self, message: Popped) -> QueueKey:
        kind = message.receipt.kind
        return QueueKey(real_topic(kind, self._group, self._topic), message.receipt.queue_id)


def times_of(found: Sequence[Popped]) -> Counter[tuple[str, int]]:
    """Returns the number of deliveries by body and earlier deliveries."""
    return Counter((each.body, each.times) for each in found)


def _popped(record: Record, header: PopMessageResponse) -> Popped:
    text = record.properties.get("POP_CK") or _receipt(record, header)
    times = record.reconsume_times
    # Clients take an ordered message's deliveries from the header.
    for each in filter(None, (header.order_count_info or "").split(";")):
        _, place, count = each.split(" ")
        if place == f"qo{record.queue_id}%{record.queue_offset}":
            times = int(count)
    return Popped(record.body.decode(), times, Receipt.parse(text))


def _receipt(record: Record, header: PopMessageResponse) -> str:
    """Returns the receipt as a Java client makes it of the header."""
    kind = kind_of(record.topic).value
    starts = [each.split(" ") for each in (header.start_offset_info or "").split(";")]
    (start,) = [each[2] for each in starts if each[:2] == [kind, str(record.queue_id)]]
    numbers = f"{start} {header.pop_ms} {header.invisible_ms} {header.revive_queue_id}"
    return f"{numbers} {kind} broker-a {record.queue_id} {record.queue_offset}"
