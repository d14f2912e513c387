"""Reading a topic as a consumer group: from where the group is, and committing what was read.

Queue after queue, a few messages a call. Each call commits what was read of the queue before it,
and the end commits the rest, so what was handed out and not gone on from comes again. There are no
heartbeats, so the group's subscriptions stay as its members have set them; and nobody shares queues
out, so two readers of one group read the same messages. State: where each queue is, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection, check
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.client.messages.model import Message
from rocketpy_broker.client.messages.pull_answers import pulled_messages
from rocketpy_broker.client.messages.topic_reader import PULL_SECONDS_MAX
from rocketpy_broker.client.offsets import QueueBounds, query_bounds
from rocketpy_broker.response_code import ResponseCode
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.rocketpy.v1 import broker_pb2

# As RocketMQ's consumers, and as many as an answer holds.
MESSAGES_PER_PULL = 32
QUEUES_PER_CALL = 1_000


class GroupReader:
    """Reads one topic for one group. `is_committing` False leaves the group where it is."""

    def __init__(
        self, connection: BrokerConnection, topic: str, group: str, *, is_committing: bool = True
    ) -> None:
        self._connection = connection
        self.topic = topic
        self.group = group
        self._is_committing = is_committing

    def messages(self, count: int | None = None) -> Iterator[Message]:
        """What the group has not consumed, up to `count` messages, of what is there now.

        A message counts as consumed when the next one is asked for. A queue in which the group has
        no progress is read from its first message, and so is one that its offset lies outside of.
        Raises ClientError.
        """
        left = count
        for queue, begin in self._begins():
            if left == 0:
                return
            for message in self._read_queue(queue, begin, left):
                yield message
                left = None if left is None else left - 1

    def _begins(self) -> list[tuple[QueueBounds, int]]:
        """Returns each queue, and where the group is in it."""
        bounds = query_bounds(self._connection, self.topic)
        offsets: list[int] = []
        for first in range(0, len(bounds), QUEUES_PER_CALL):
            offsets += self._committed(bounds[first : first + QUEUES_PER_CALL])
        return list(zip(bounds, offsets, strict=True))

    def _committed(self, queues: Sequence[QueueBounds]) -> list[int]:
        request = broker_pb2.QueryConsumerOffsetsRequest(
            consumer_group=self.group,
            queues=[
                broker_pb2.TopicQueue(topic=self.topic, queue_id=queue.queue_id) for queue in queues
            ],
        )
        response: broker_pb2.QueryConsumerOffsetsResponse = self._connection.ask(
            lambda: self._connection.broker.QueryConsumerOffsets(
                request, timeout=REQUEST_SECONDS_MAX
            )
        )
        if len(response.offsets) != len(queues):
            raise UnreadableError(
                f"the broker answers for {len(response.offsets)} of {len(queues)} queues"
            )
        offsets: list[int] = []
        for queue, found in zip(queues, response.offsets, strict=True):
            if found.status.code == ResponseCode.QUERY_NOT_FOUND:
                offsets.append(queue.min_offset)
            else:
                check(found.status)
                is_there = queue.min_offset <= found.offset <= queue.max_offset
                offsets.append(found.offset if is_there else queue.min_offset)
        return offsets

    def _read_queue(self, queue: QueueBounds, begin: int, left: int | None) -> Iterator[Message]:
        """Messages of one queue, at most `left`; its progress is committed at the end."""
        offset, committed = begin, begin
        while offset < queue.max_offset and left != 0:
            wanted = MESSAGES_PER_PULL if left is None else min(left, MESSAGES_PER_PULL)
            request = broker_pb2.PullRequest(
                topic=self.topic,
                queue_id=queue.queue_id,
                offset=offset,
                offset_end=min(offset + wanted, queue.max_offset),
                consumer_group=self.group,
            )
            if self._is_committing:
                request.commit_offset = committed = offset
            before = offset
            for answer in self._pull(request):
                found, following = pulled_messages(request, offset, answer)
                # An answer without messages may name any offset.
                offset = min(following, queue.max_offset)
                messages = list(found)
                yield from messages
                left = None if left is None else left - len(messages)
            if offset == before:
                break
        if self._is_committing and committed < offset:
            self._commit(queue.queue_id, offset)

    def _pull(self, request: broker_pb2.PullRequest) -> list[PullResponseParts]:
        """Returns the answers of one call."""
        with self._connection.faults():
            return list(self._connection.pull(request, PULL_SECONDS_MAX))

    def _commit(self, queue_id: int, offset: int) -> None:
        entry = broker_pb2.CommittedOffset(topic=self.topic, queue_id=queue_id, offset=offset)
        request = broker_pb2.CommitOffsetsRequest(consumer_group=self.group, offsets=[entry])
        self._connection.ask(
            lambda: self._connection.broker.CommitOffsets(request, timeout=REQUEST_SECONDS_MAX)
        )
