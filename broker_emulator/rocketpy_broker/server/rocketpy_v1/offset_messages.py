"""Messages of offset queries, read and encoded in scheduler slots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1.name_rules import STORED, check_each
from rocketpy_broker.services.offsets.known import KnownOffsets
from rocketpy_proto.call_limits import OFFSET_QUERY_QUEUES_MAX
from rocketpy_proto.rocketpy.v1 import broker_pb2

# Known queues per scheduler slot, read in 2 ms.
KNOWN_A_SLOT = 1_000
EntryT = TypeVar("EntryT", broker_pb2.KnownOffset, broker_pb2.TopicQueue)


class OffsetsAnswer:
    """A QueryOffsetsResponse in encoded parts, which protobuf decodes as one message.

    Each topic is encoded when it is added, so the end of a large answer takes no time.
    """

    def __init__(self, head: broker_pb2.QueryOffsetsResponse) -> None:
        self.status = head.status
        self._parts = [head.SerializeToString()]
        self._queue_count = 0

    def add(self, part: broker_pb2.QueryOffsetsResponse) -> None:
        """Adds topics or other fields. Raises ParameterIllegalError for too many queues in all."""
        self._queue_count += sum(len(each.queues) + len(each.hidden_queues) for each in part.topics)
        if self._queue_count > OFFSET_QUERY_QUEUES_MAX:
            accepted = f"at most {OFFSET_QUERY_QUEUES_MAX}; ask for fewer topics"
            raise ParameterIllegalError(
                "number of queues of all topics", self._queue_count, accepted
            )
        self._parts.append(part.SerializeToString())

    def SerializeToString(self) -> bytes:  # noqa: N802
        """Returns the encoded message, as protobuf's messages do."""
        return b"".join(self._parts)


async def known_offsets(request: broker_pb2.QueryOffsetsRequest) -> KnownOffsets:
    """Returns the offsets and hidden queues that a client knows, from its query.

    Only a held query needs the offsets. A query without a pattern needs only the offsets of its
    named topics. Raises ParameterIllegalError for an illegal topic.
    """
    known = KnownOffsets()
    named = frozenset(request.topics if request.wait_ms_max else ())
    is_any_asked = bool(request.topic_pattern and request.wait_ms_max)
    async for topics, part in _in_turns(request.known):
        known.add(
            (topic, each.queue_id, each.max_offset, each.topic_epoch)
            for topic, each in zip(topics, part, strict=True)
            if is_any_asked or topic in named
        )
    named = frozenset(request.topics)
    async for topics, hidden in _in_turns(request.hidden_queues):
        known.add_hidden(
            (topic, each.queue_id)
            for topic, each in zip(topics, hidden, strict=True)
            if request.topic_pattern or topic in named
        )
    return known


async def _in_turns(entries: Sequence[EntryT]) -> AsyncIterator[tuple[list[str], Sequence[EntryT]]]:
    """Yields slices of entries with their topics, one per scheduler slot.

    Raises ParameterIllegalError for an illegal topic.
    """
    for begin in range(0, len(entries), KNOWN_A_SLOT):
        part = entries[begin : begin + KNOWN_A_SLOT]
        topics = [each.topic for each in part]
        check_each(STORED, "topic", topics)
        yield topics, part
        if len(part) == KNOWN_A_SLOT:
            await take_slot("offsets")
