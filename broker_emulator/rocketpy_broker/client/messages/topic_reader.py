"""Reader of a topic's queues in the order of the commit log.

It pulls the queues in parallel and merges them. So it holds one or two responses of each queue. It
finds the last messages queue by queue, and skips messages that were removed meanwhile. To follow a
topic, it requests the queues' bounds by long polling. State: the next offset of each queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import grpc

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.messages.pull_answers import pulled_messages
from rocketpy_broker.client.offsets import offsets_at, query_bounds
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.rocketpy.v1 import broker_pb2

PULL_SECONDS_MAX = 30.0
# Bytes of one queue's response. A reader has all queues of a topic open; they share
# READER_BYTES_MAX.
RESPONSE_BYTES_MIN, RESPONSE_BYTES_MAX = 4 << 10, 256 << 10
READER_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A range [begin, end) of a queue's messages."""

    queue_id: int
    begin: int
    end: int


class TopicReader:
    """A reader of one topic. `next_messages` continues after the last read."""

    def __init__(
        self, connection: BrokerConnection, topic: str, queue_ids: Collection[int] = ()
    ) -> None:
        """Reads the queues of `queue_ids`, or else all queues."""
        self._connection = connection
        self.topic = topic
        self._queue_ids = frozenset(queue_ids)
        self._positions: dict[int, int] = {}

    def first(
        self, count: int | None = None, *, since: datetime | None = None
    ) -> Iterator[Message]:
        """Returns the first `count` stored messages, or all; `since` is the first store time.

        Raises ClientError, ParameterIllegalError for a queue that does not exist.
        """
        bounds = self._bounds_now()
        begins = {queue.queue_id: queue.min_offset for queue in bounds}
        if since is not None:
            begins = offsets_at(self._connection, self.topic, [*begins], since)
        ranges = [
            QueueRange(queue.queue_id, begins[queue.queue_id], queue.max_offset) for queue in bounds
        ]
        return islice(self._read(ranges), count)

    def last(self, count: int) -> Iterator[Message]:
        """Returns the last `count` stored messages, in the log's order. Raises ClientError."""
        newest: list[tuple[int, int, int, Message]] = []
        for queue in self._bounds_now() if count else ():
            begin = max(queue.min_offset, queue.max_offset - count)
            part = QueueRange(queue.queue_id, begin, queue.max_offset)
            for message in self._read_queue(part, RESPONSE_BYTES_MAX):
                place = (message.commit_log_offset, message.queue_id, message.queue_offset)
                entry = (*place, message)
                if len(newest) < count:
                    heapq.heappush(newest, entry)
                else:
                    heapq.heappushpop(newest, entry)
        return (message for *_, message in sorted(newest))

    def next_messages(self, wait_ms_max: int) -> Iterator[Message]:
        """Returns messages stored since the last read; none after `wait_ms_max` without a message.

        A queue that has become shorter is a new queue of the same name. It is read from its first
        message. Raises ClientError.
        """
        bounds = query_bounds(
            self._connection, self.topic, known=self._positions, wait_ms_max=wait_ms_max
        )
        ranges = [_new_range(queue, self._positions) for queue in self._wanted(bounds)]
        self._positions = _ends(bounds)
        return self._read(ranges)

    def _bounds_now(self) -> Sequence[broker_pb2.QueueOffsets]:
        bounds = query_bounds(self._connection, self.topic)
        self._positions = _ends(bounds)
        missing = self._queue_ids - self._positions.keys()
        if missing:
            accepted = f"the id of one of the {len(bounds)} read queues of topic {self.topic!r}"
            raise ParameterIllegalError("queue_id", min(missing), accepted)
        return self._wanted(bounds)

    def _wanted(
        self, bounds: Sequence[broker_pb2.QueueOffsets]
    ) -> Sequence[broker_pb2.QueueOffsets]:
        if not self._queue_ids:
            return bounds
        return [queue for queue in bounds if queue.queue_id in self._queue_ids]

    def _read(self, ranges: Sequence[QueueRange]) -> Iterator[Message]:
        """Returns the messages of all ranges, in the log's order."""
        filled = [part for part in ranges if part.begin < part.end]
        share = READER_BYTES_MAX // max(len(filled), 1)
        bytes_max = min(RESPONSE_BYTES_MAX, max(RESPONSE_BYTES_MIN, share))
        queues = [self._read_queue(part, bytes_max) for part in filled]
        return heapq.merge(*queues, key=lambda message: message.commit_log_offset)

    def _read_queue(self, part: QueueRange, bytes_max: int) -> Iterator[Message]:
        offset = part.begin
        while offset < part.end:
            before = offset
            request = broker_pb2.PullRequest(
                topic=self.topic,
                queue_id=part.queue_id,
                offset=offset,
                offset_end=part.end,
                response_bytes_max=bytes_max,
            )
            for response in self._responses(request):
                messages, offset = pulled_messages(request, offset, response)
                yield from messages
            if offset == before:
                return

    def _responses(self, request: broker_pb2.PullRequest) -> Iterator[PullResponseParts]:
        """Yields one call's responses. The deadline of a slow reader's call is no error."""
        count = 0
        with self._connection.faults():
            try:
                for response in self._connection.pull(request, PULL_SECONDS_MAX):
                    yield response
                    count += 1
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or not count:
                    raise


def _ends(bounds: Sequence[broker_pb2.QueueOffsets]) -> dict[int, int]:
    return {queue.queue_id: queue.max_offset for queue in bounds}


def _new_range(queue: broker_pb2.QueueOffsets, positions: Mapping[int, int]) -> QueueRange:
    known = positions.get(queue.queue_id, 0)
    begin = known if known <= queue.max_offset else queue.min_offset
    return QueueRange(queue.queue_id, max(begin, queue.min_offset), queue.max_offset)
