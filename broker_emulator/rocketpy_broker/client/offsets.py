"""Offsets of queues and lag of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rocketpy_broker.client.connection import (
    BrokerConnection,
    last_name,
    only,
    raise_refusal,
)
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_proto.call_limits import ENTRIES_MAX as SEARCHES_MAX
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group's progress in a queue with messages [min_offset, max_offset).

    The group reads `committed_offset` next; None: not committed.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int | None

    @property
    def lag(self) -> int:
        """The number of messages in the queue that are not consumed."""
        return max(self.max_offset - max(self.committed_offset or 0, self.min_offset), 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A consumer group's progress in a topic, in all and by queue.

    `is_known` is False for a group that the broker does not know.
    """

    topic: str
    consumer_group: str
    is_known: bool
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        """The number of messages in all queues that are not consumed."""
        return sum(queue.lag for queue in self.queues)


def query_bounds(
    connection: BrokerConnection,
    topic: str,
    *,
    known: Mapping[int, int] | None = None,
    wait_ms_max: int = 0,
) -> Sequence[broker_pb2.QueueOffsets]:
    """Returns the bounds of a topic's queues, sorted by queue id.

    With `known` maximum offsets by queue id, the broker holds the call until one of them changes.
    It holds the call for at most `wait_ms_max`. Raises ClientError.
    """
    request = broker_pb2.QueryOffsetsRequest(
        topics=[topic],
        wait_ms_max=wait_ms_max,
        known=[
            broker_pb2.KnownOffset(topic=topic, queue_id=queue_id, max_offset=offset)
            for queue_id, offset in (known or {}).items()
        ],
    )
    return _queues(_query(connection, request))


def query_lag(connection: BrokerConnection, topic: str, group: str) -> GroupLag:
    """Returns the lag of `group` in `topic`. Raises ClientError."""
    request = broker_pb2.QueryOffsetsRequest(topics=[topic], consumer_group=group)
    response = _query(connection, request)
    queues = tuple(
        QueueLag(
            queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            None if queue.committed_offset < 0 else queue.committed_offset,
        )
        for queue in _queues(response)
    )
    # An imported table of offsets can name a group that the table of groups lacks.
    has_progress = any(queue.committed_offset is not None for queue in queues)
    return GroupLag(topic, group, response.consumer_group_exists or has_progress, queues)


def offsets_at(
    connection: BrokerConnection, topic: str, queue_ids: Sequence[int], time: datetime
) -> dict[int, int]:
    """Returns the offset of each queue's first message that was stored at `time` or later.

    For a queue without such a message it is the maximum offset.
    Raises ClientError.
    """
    found: dict[int, int] = {}
    while len(found) < len(queue_ids):
        asked = queue_ids[len(found) : len(found) + SEARCHES_MAX]
        request = broker_pb2.SearchOffsetsRequest(
            queues=[
                broker_pb2.QueueTime(topic=topic, queue_id=queue_id, timestamp_ms=ms_of_time(time))
                for queue_id in asked
            ]
        )
        answers = connection.ask(connection.broker.SearchOffsets, request).offsets
        if not answers:
            raise UnreadableError(f"the broker found no offset in topic {topic!r}. Search again")
        found |= {queue_id: each.offset for queue_id, each in zip(asked, answers, strict=False)}
    return found


def topic_groups(connection: BrokerConnection, topic: str) -> Iterator[str]:
    """Yields the groups with committed offsets in `topic`, sorted by name.

    Raises ClientError.
    """

    def next_place(page: admin_pb2.ListTopicGroupsResponse) -> str | None:
        return last_name(page.groups, has_more=page.has_more)

    request = admin_pb2.ListTopicGroupsRequest(topic=topic)
    for page in connection.pages(connection.admin.ListTopicGroups, request, next_place):
        yield from page.groups


def _query(
    connection: BrokerConnection, request: broker_pb2.QueryOffsetsRequest
) -> broker_pb2.QueryOffsetsResponse:
    seconds_max = connection.seconds_max + request.wait_ms_max / 1000
    response: broker_pb2.QueryOffsetsResponse = connection.ask(
        connection.broker.QueryOffsets, request, seconds_max
    )
    return response


def _queues(response: broker_pb2.QueryOffsetsResponse) -> Sequence[broker_pb2.QueueOffsets]:
    """Returns the queues of the requested topic. Raises RefusedError, UnreadableError."""
    topic = only(response.topics, "a topic")
    raise_refusal(topic.status)
    return topic.queues
