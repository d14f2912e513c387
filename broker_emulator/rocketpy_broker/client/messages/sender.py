"""Sender that checks messages, spreads them over queues and sends blocks.

A send batch has one block for each queue and is sent when it is full. So a sender holds at most
BATCH_BYTES_MAX and one message. A crash loses messages that were not acknowledged. State: the next
queue, and the number of acknowledged messages.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rocketpy_broker.client.connection import BrokerConnection, raise_refusal
from rocketpy_broker.client.errors import (
    ClientError,
    MessageIllegalError,
    SendError,
    UnreadableError,
)
from rocketpy_broker.client.topics import get_topic
from rocketpy_broker.messages.outgoing_message import (
    MessageRules,
    OutgoingMessage,
    SentMessage,
    block_columns,
    room_bytes,
    size_about,
)
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import EncodedBlock, encode_block
from rocketpy_proto.rocketpy.v1 import broker_pb2, common_pb2

# Codes of messages that are stored, but not confirmed in time by a disk or by slaves.
STORED = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
BATCH_MESSAGES_MAX = 5_000
BATCH_BYTES_MAX = 4 << 20
BATCH_SECONDS_MAX = 30.0
ANY_QUEUE = -1


@dataclass(frozen=True, slots=True)
class _QueueBlock:
    """Messages of one queue with the same delay, and their numbers in the batch."""

    queue_id: int
    numbers: list[int]
    msg_ids: list[str]
    block: EncodedBlock


class MessageChecker:
    """A check of messages before the send."""

    def __init__(self, connection: BrokerConnection, topic: str) -> None:
        """Raises UnreachableError, CallFailedError, RefusedError, also for a missing topic."""
        config = get_topic(connection, topic)
        self.topic = topic
        self.write_queue_nums = config.write_queue_nums
        self.message_type = config.message_type
        self._rules = MessageRules(topic, config.write_queue_nums, connection.limits)

    def check(self, messages: Sequence[OutgoingMessage], first: int = 0) -> None:
        """Raises MessageIllegalError for an illegal message; `first` is the first one's number."""
        for number, message in enumerate(messages, first):
            fault = self.fault(message)
            if fault is not None:
                raise MessageIllegalError(number, fault)

    def fault(self, message: OutgoingMessage) -> str | None:
        """Returns the fault of a message as a sentence; None without a fault."""
        return self._rules.fault(message)


class MessageSender:
    """A sender of messages to one topic; `sent_count` counts acknowledged messages."""

    def __init__(self, connection: BrokerConnection, topic: str, turn: int = 0) -> None:
        """Starts with the queue `turn`; with ANY_QUEUE the broker chooses the queues.

        Raises UnreachableError, CallFailedError, RefusedError, also for a missing topic.
        """
        self._connection = connection
        self._clock = SystemClock()
        limits = connection.limits
        log_bytes = room_bytes(limits) or BATCH_BYTES_MAX
        self._batch_bytes_max = min(BATCH_BYTES_MAX, limits.request_bytes_max // 2, log_bytes)
        self.checker = MessageChecker(connection, topic)
        self.turn = turn
        self.sent_count = 0

    def send(self, messages: Iterable[OutgoingMessage]) -> Iterator[SentMessage]:
        """Sends messages in order; yields acknowledged messages in the same order.

        Raises MessageIllegalError, SendError; yielded messages stay sent.
        """
        given_count = 0
        for batch in self._batches(messages):
            self.checker.check(batch, given_count)
            given_count += len(batch)
            sent = self._send_batch(batch)
            self.sent_count += len(sent)
            yield from sent

    def _batches(self, messages: Iterable[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
        batch: list[OutgoingMessage] = []
        size = 0
        for message in messages:
            message_bytes = size_about(message)
            is_full = len(batch) == BATCH_MESSAGES_MAX
            if batch and (is_full or size + message_bytes > self._batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += message_bytes
        if batch:
            yield batch

    def _send_batch(self, batch: list[OutgoingMessage]) -> list[SentMessage]:
        sent: dict[int, SentMessage] = {}
        try:
            for answer in self._append(self._blocks(batch), sent):
                raise_refusal(answer)
            if len(sent) < len(batch):
                raise UnreadableError(
                    f"the broker at {self._connection.endpoint} acknowledged {len(sent)} of "
                    f"{len(batch)} messages and ended the call; send the rest again"
                )
        except ClientError as error:
            raise SendError(error, self.sent_count + len(sent)) from error
        return [sent[number] for number in range(len(batch))]

    def _append(
        self, blocks: Iterator[_QueueBlock], sent: dict[int, SentMessage]
    ) -> list[common_pb2.Status]:
        """Sends the blocks and adds acknowledged messages to `sent`; returns the refusals.

        Each block is sent as soon as it is encoded.
        """
        refusals = []
        given: list[_QueueBlock] = []

        def requests() -> Iterator[broker_pb2.AppendRequest]:
            for block in blocks:
                given.append(block)
                yield self._request(block)

        with self._connection.faults():
            call = self._connection.broker.Append(requests(), timeout=BATCH_SECONDS_MAX)
            for response, block in zip(call, given, strict=False):
                code = response.status.code
                if code:
                    refusals.append(response.status)
                if code and code not in STORED:
                    continue
                if response.record_count != len(block.numbers):
                    raise UnreadableError(
                        f"the broker acknowledged {response.record_count} messages of a block of "
                        f"{len(block.numbers)}"
                    )
                sent |= _places(block, response)
        return refusals

    def _blocks(self, batch: list[OutgoingMessage]) -> Iterator[_QueueBlock]:
        """Yields a block for each queue and delay; its messages keep their order."""
        numbers_by_place: dict[tuple[int, int, bool], list[int]] = {}
        queues = self._next_queues(sum(message.queue_id is None for message in batch))
        for number, message in enumerate(batch):
            queue_id = next(queues) if message.queue_id is None else message.queue_id
            place = queue_id, message.delay_level, message.deliver_at is not None
            numbers_by_place.setdefault(place, []).append(number)
        for (queue_id, _, _), numbers in numbers_by_place.items():
            yield self._encode(queue_id, numbers, [batch[number] for number in numbers])

    def _next_queues(self, count: int) -> Iterator[int]:
        """Returns queues for `count` messages, the same for neighbours, to keep their order."""
        if self.turn == ANY_QUEUE:
            return itertools.repeat(ANY_QUEUE, count)
        nums = self.checker.write_queue_nums
        begin, used = self.turn, min(nums, count)
        self.turn = (begin + used) % nums
        return ((begin + number * used // count) % nums for number in range(count))

    def _encode(
        self, queue_id: int, numbers: list[int], messages: list[OutgoingMessage]
    ) -> _QueueBlock:
        now_ms, topic = self._clock.now_ms(), self.checker.topic
        columns, msg_ids = block_columns(topic, messages, now_ms, max(queue_id, 0))
        return _QueueBlock(queue_id, numbers, msg_ids, encode_block(columns))

    def _request(self, block: _QueueBlock) -> broker_pb2.AppendRequest:
        return broker_pb2.AppendRequest(
            topic=self.checker.topic,
            queue_id=block.queue_id,
            record_sizes=block.block.sizes.astype(np.dtype(">i4")).tobytes(),
            records=block.block.data.to_pybytes(),
        )


def _places(block: _QueueBlock, response: broker_pb2.AppendResponse) -> dict[int, SentMessage]:
    offsets: Iterable[int | None] = itertools.count(response.queue_offset)
    if response.is_delayed:
        offsets = itertools.repeat(None)
    numbered = zip(block.numbers, block.msg_ids, offsets, strict=False)
    return {
        number: SentMessage(msg_id, response.queue_id, offset)
        for number, msg_id, offset in numbered
    }
