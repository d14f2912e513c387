"""Sending back of messages, and dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from rocketpy_broker.client.connection import BrokerConnection, only, raise_refusal
from rocketpy_broker.client.errors import RefusedError, UnreadableError
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.model import DEAD_LETTER_PREFIX, dead_letter_topic
from rocketpy_proto.record import decode_offset_message_id
from rocketpy_proto.rocketpy.v1 import broker_pb2, retry_pb2

RETRY, DEAD_LETTER, DROPPED = "retry", "deadLetter", "dropped"
_SENT_BACK_TO: Mapping[int, str] = {
    retry_pb2.RETRY: RETRY,
    retry_pb2.DEAD_LETTER: DEAD_LETTER,
    retry_pb2.DROPPED: DROPPED,
}


def send_back(
    connection: BrokerConnection, group: str, offset_msg_id: str, delay_level: int = 0
) -> str:
    """Sends a message back to the group with a delay level; returns RETRY, DEAD_LETTER or DROPPED.

    Level 0 takes the delay from the number of failures. A level below 0 makes the message a dead
    letter. Raises ParameterIllegalError for an invalid id, UnreachableError, CallFailedError,
    RefusedError, UnreadableError.
    """
    try:
        _, offset = decode_offset_message_id(offset_msg_id)
    except ValueError as error:
        accepted = "the offsetMsgId of a message"
        raise ParameterIllegalError("offset_msg_id", offset_msg_id, accepted) from error
    message = retry_pb2.MessageToSendBack(
        commit_log_offset=offset, delay_level=delay_level, origin_msg_id=offset_msg_id.upper()
    )
    request = retry_pb2.SendBackRequest(consumer_group=group, messages=[message])
    response: retry_pb2.SendBackResponse = connection.ask(connection.retry.SendBack, request)
    answer = only(response.messages, offset_msg_id)
    raise_refusal(answer.status)
    if answer.to not in _SENT_BACK_TO:
        raise UnreadableError(
            f"the broker sent {offset_msg_id!r} back to destination {answer.to}, which this client "
            "does not know; is the broker newer?"
        )
    return _SENT_BACK_TO[answer.to]


def dead_letters(
    connection: BrokerConnection,
    group: str,
    keys: Sequence[str] = (),
    offsets: Sequence[int] = (),
    queue_ids: Collection[int] = (),
    since: datetime | None = None,
) -> Iterator[Message]:
    """Yields the group's dead letters, oldest first: all, or only with given keys or offsets.

    `queue_ids` limits the queues, and `since` is the first store time. A group without dead letters
    has no topic for them; the iterator is empty then. Raises UnreachableError, CallFailedError,
    RefusedError, UnreadableError, ParameterIllegalError for a missing queue.
    """
    wanted_keys, wanted_offsets = frozenset(keys), frozenset(offsets)
    try:
        letters = TopicReader(connection, dead_letter_topic(group), queue_ids).first(since=since)
    except RefusedError as error:
        if error.is_missing_topic:
            return
        raise
    for message in letters:
        has_key = not wanted_keys.isdisjoint((*message.keys, message.msg_id))
        if not (keys or offsets) or has_key or message.queue_offset in wanted_offsets:
            yield message


def dead_letter_counts(connection: BrokerConnection) -> dict[str, int]:
    """Returns the number of dead letters by group.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = broker_pb2.QueryOffsetsRequest(topic_pattern=f"{DEAD_LETTER_PREFIX}.+")
    response = connection.ask(connection.broker.QueryOffsets, request)
    counts = {
        answer.topic.removeprefix(DEAD_LETTER_PREFIX): sum(
            queue.max_offset - queue.min_offset for queue in answer.queues
        )
        for answer in response.topics
    }
    return {group: count for group, count in counts.items() if count}
