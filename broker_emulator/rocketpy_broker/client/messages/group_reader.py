"""Reader of a topic that commits its progress as a consumer group.

It reads the queues one after the other, MESSAGES_PER_PULL messages a call. A call commits the
messages that the calls before it returned; the last commit is at the queue's end. The last messages
are redelivered if the reader stops.

The reader sends no heartbeats, so the group's subscriptions do not change. It has no share of the
queues, so two readers of one group read the same messages. State: the position in the queue, in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rocketpy_broker.client.connection import BrokerConnection, raise_refusal
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.client.messages.pull_answers import pulled_messages
from rocketpy_broker.client.messages.topic_reader import PULL_SECONDS_MAX
from rocketpy_broker.client.offsets import query_bounds
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.rocketpy.v1 import broker_pb2

# pullBatchSize of RocketMQ's consumers; an answer has at most as many.
MESSAGES_PER_PULL = 32
QUEUES_PER_CALL = 1_000


class GroupReader:
    """A reader of one topic for one group. With `is_committing` False it commits nothing."""

    def __init__(
        self,
        connection: BrokerConnection,
        topic: str,
        group: str,
        *,
        is_committing: bool = True,
        is_from_latest: bool = False,
    ) -> None:
        """Takes in `is_from_latest`: queues without a committed offset start at their ends.

        The first call of `messages` commits these ends.
        """
        self._connection = connection
        self.topic = topic
        self.group = group
        self._is_committing = is_committing
        self._is_from_latest = is_from_latest

    def messages(self, count: int | None = None) -> Iterator[Message]:
        """Yields up to `count` stored messages that the group has not consumed.

        Progress is committed with the next call and at the queue's end. So the messages of the
        last call may come again. A queue without the group's progress, or with an offset outside
        its bounds, is read from its first message. Raises ClientError.
        """
        left = count
        for queue, begin in self._begins():
            if left == 0:
                return
            for message in self._read_queue(queue, begin, left):
                yield message
                left = None if left is None else left - 1

    def _begins(self) -> list[tuple[broker_pb2.QueueOffsets, int]]:
        """Returns each queue with the group's offset in it."""
        bounds = query_bounds(self._connection, self.topic)
        offsets: list[int] = []
        for first in range(0, len(bounds), QUEUES_PER_CALL):
            offsets += self._committed(bounds[first : first + QUEUES_PER_CALL])
        return list(zip(bounds, offsets, strict=True))

    def _committed(self, queues: Sequence[broker_pb2.QueueOffsets]) -> list[int]:
        request = broker_pb2.QueryConsumerOffsetsRequest(
            consumer_group=self.group,
            queues=[
                broker_pb2.TopicQueue(topic=self.topic, queue_id=queue.queue_id) for queue in queues
            ],
        )
        response = self._connection.ask(self._connection.broker.QueryConsumerOffsets, request)
        if len(response.offsets) != len(queues):
            raise UnreadableError(
                f"the broker's answer has offsets of {len(response.offsets)} queues, not of the "
                f"{len(queues)} requested ones. Read again"
            )
        offsets: list[int] = []
        skipped: list[broker_pb2.QueueOffsets] = []
        for queue, found in zip(queues, response.offsets, strict=True):
            if found.status.code == ResponseCode.QUERY_NOT_FOUND:
                offsets.append(queue.max_offset if self._is_from_latest else queue.min_offset)
                skipped.append(queue)
            else:
                raise_refusal(found.status)
                is_there = queue.min_offset <= found.offset <= queue.max_offset
                offsets.append(found.offset if is_there else queue.min_offset)
        if self._is_from_latest and skipped:
            self._commit({queue.queue_id: queue.max_offset for queue in skipped})
        return offsets

    def _read_queue(
        self, queue: broker_pb2.QueueOffsets, begin: int, left: int | None
    ) -> Iterator[Message]:
        """Yields at most `left` messages of a queue and commits the progress at the end."""
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
                # An answer without messages may have any next offset.
                offset = min(following, queue.max_offset)
                messages = list(found)
                yield from messages
                left = None if left is None else left - len(messages)
            if offset == before:
                break
        if self._is_committing and committed < offset:
            self._commit({queue.queue_id: offset})

    def _pull(self, request: broker_pb2.PullRequest) -> list[PullResponseParts]:
        """Returns the answers of one call."""
        with self._connection.faults():
            return list(self._connection.pull(request, PULL_SECONDS_MAX))

    def _commit(self, offsets: Mapping[int, int]) -> None:
        """Commits offsets by queue id."""
        entries = [
            broker_pb2.CommittedOffset(topic=self.topic, queue_id=queue_id, offset=offset)
            for queue_id, offset in offsets.items()
        ]
        request = broker_pb2.CommitOffsetsRequest(consumer_group=self.group, offsets=entries)
        self._connection.ask(self._connection.broker.CommitOffsets, request)
