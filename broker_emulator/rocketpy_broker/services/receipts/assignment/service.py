"""Assignment of a topic's queues to a group's member.

Each broker assigns its own queues. Source: QueryAssignmentProcessor,
AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from rocketpy_broker.services.groups.clients.registry import ClientService
from rocketpy_broker.services.receipts.assignment.modes import (
    POP,
    MessageRequestMode,
    MessageRequestModes,
)
from rocketpy_broker.services.receipts.popped import ANY_QUEUE
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model.configs import Perm

AVERAGELY, BY_CIRCLE = "AVG", "AVG_BY_CIRCLE"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The mode of reading, and the queues; ANY_QUEUE alone means all queues of this broker."""

    mode: str
    queue_ids: Sequence[int]


class AssignmentService:
    """The service that assigns queues."""

    def __init__(
        self,
        topics: TopicConfigManager,
        clients: ClientService,
        modes: MessageRequestModes,
        broker_name: str,
    ) -> None:
        self._topics = topics
        self._clients = clients
        self._modes = modes
        self.broker_name = broker_name

    def assign(
        self, topic: str, group: str, client_id: str, strategy: str, *, is_broadcasting: bool
    ) -> Assignment | None:
        """Returns the client's queues; None if it should keep its present ones.

        The client keeps its queues if the topic, group or strategy is unknown, or the topic is not
        readable.
        """
        mode, config = self._modes.find(topic, group), self._topics.find(topic)
        if config is None or not config.perm & Perm.READ:
            return None
        count = config.readable_queues
        if is_broadcasting:
            return Assignment(mode.mode, range(count))
        if self._clients.consumer_group(group) is None or strategy not in {AVERAGELY, BY_CIRCLE}:
            return None
        members = self._clients.member_ids(group)
        return Assignment(mode.mode, _queues_of(client_id, members, mode, strategy, count))


def _queues_of(
    client_id: str,
    members: Sequence[str],
    mode: MessageRequestMode,
    strategy: str,
    count: int,
) -> Sequence[int]:
    """Returns the queues of one of the members, which are sorted."""
    place, size = bisect_left(members, client_id), len(members)
    if mode.mode == POP and mode.share_count <= 0:
        return [ANY_QUEUE] if count else []
    if not count or members[place : place + 1] != [client_id]:
        return []
    if mode.mode == POP and size > count:
        return [place % count]
    shared = min(mode.share_count, size - 1) if mode.mode == POP else 0
    places = [(place + i) % size for i in range(shared + 1)]
    return sorted(i for each in places for i in _allocated(strategy, each, size, count))


def _allocated(strategy: str, place: int, size: int, count: int) -> range:
    """Returns the queues of the member number `place` of `size` members."""
    if strategy == BY_CIRCLE:
        return range(place, count, size)
    share, rest = divmod(count, size)
    begin = place * share + min(place, rest)
    return range(begin, begin + share + (place < rest))
