"""Messages of offset queries, read in steps that leave the event loop free. No state."""

from __future__ import annotations

from rocketpy_broker.clock import give_way
from rocketpy_broker.server.rocketpy_v1.names import STORED, check_each
from rocketpy_broker.services.offsets.known import KnownOffsets
from rocketpy_broker.services.offsets.service import QueueOffsets
from rocketpy_proto.rocketpy.v1 import broker_pb2

# Queues that a client knows; they are read in 2 ms.
KNOWN_A_TURN = 1_000


def queue_offsets(queue: QueueOffsets) -> broker_pb2.QueueOffsets:
    """Returns the message of one queue."""
    return broker_pb2.QueueOffsets(
        queue_id=queue.queue_id,
        min_offset=queue.min_offset,
        max_offset=queue.max_offset,
        committed_offset=queue.committed_offset,
        cut_offset=queue.cut_offset,
    )


async def known_offsets(request: broker_pb2.QueryOffsetsRequest) -> KnownOffsets:
    """Reads the queues that a client knows. Raises ParameterIllegalError for an illegal topic.

    Only a held query needs them. One without a pattern asks for the topics that it names.
    """
    known = KnownOffsets()
    named = frozenset(request.topics if request.wait_ms_max else ())
    is_any_asked = bool(request.topic_pattern and request.wait_ms_max)
    for begin in range(0, len(request.known), KNOWN_A_TURN):
        part = request.known[begin : begin + KNOWN_A_TURN]
        topics = [each.topic for each in part]
        check_each(STORED, "topic", topics)
        known.add(
            (topic, each.queue_id, each.max_offset, each.topic_epoch)
            for topic, each in zip(topics, part, strict=True)
            if is_any_asked or topic in named
        )
        if len(part) == KNOWN_A_TURN:
            await give_way("offsets")
    await _add_hidden(known, request)
    return known


async def _add_hidden(known: KnownOffsets, request: broker_pb2.QueryOffsetsRequest) -> None:
    """Raises ParameterIllegalError for an illegal topic."""
    named = frozenset(request.topics)
    for begin in range(0, len(request.hidden_queues), KNOWN_A_TURN):
        part = [
            (each.topic, each.queue_id)
            for each in request.hidden_queues[begin : begin + KNOWN_A_TURN]
        ]
        check_each(STORED, "topic", [topic for topic, _ in part])
        known.add_hidden(each for each in part if request.topic_pattern or each[0] in named)
        if len(part) == KNOWN_A_TURN:
            await give_way("offsets")
