"""Lookup of single messages by key, tag, offset message id or offset."""

from __future__ import annotations

from datetime import datetime

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.client.messages.model import decode_messages
from rocketpy_broker.client.messages.pull_answers import pulled_messages
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.runtime.time_format import ms_of_time
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2

SECOND_MS = 1_000
# The broker's default.
COUNT_DEFAULT = 32


def query_messages(
    connection: BrokerConnection,
    topic: str,
    key: str,
    count_max: int,
    *,
    tag: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Message]:
    """Returns the newest messages of `topic` with `key`, or instead with `tag`, oldest first.

    `since` and `until` are store times, both included. `count_max` 0 is the broker's default.
    Raises ClientError.
    """
    request = admin_pb2.QueryMessageRequest(topic=topic, key=key, tag=tag, count_max=count_max)
    # The index has times in seconds.
    if since is not None:
        request.begin_timestamp_ms = max(ms_of_time(since) - SECOND_MS, 0)
    if until is not None:
        request.end_timestamp_ms = max(ms_of_time(until) + SECOND_MS, 1)
    found: list[Message] = []
    wanted = count_max or COUNT_DEFAULT
    while True:
        page: admin_pb2.MessagesResponse = connection.ask(connection.admin.QueryMessage, request)
        messages = decode_messages(page.records, page.record_sizes)
        found[:0] = [each for each in messages if _is_between(each, since, until)]
        following, before = page.next_before_offset, request.before_offset
        if following == 0 or len(found) >= wanted:
            return found[-wanted:]
        if following < 0 or (before and following >= before):
            raise UnreadableError(
                f"the broker's listing does not end: {following} follows {before}. List it again"
            )
        request.before_offset = following


def _is_between(message: Message, since: datetime | None, until: datetime | None) -> bool:
    time = message.store_timestamp
    return (since is None or since <= time) and (until is None or time <= until)


def view_message(connection: BrokerConnection, offset_msg_id: str) -> Message:
    """Returns the message with this id. Raises ClientError."""
    request = admin_pb2.ViewMessageRequest(offset_msg_id=offset_msg_id)
    response = connection.ask(connection.admin.ViewMessage, request)
    for message in decode_messages(response.records, response.record_sizes):
        return message
    raise UnreadableError(f"the broker's answer for {offset_msg_id!r} holds no message")


def message_at(
    connection: BrokerConnection, topic: str, queue_id: int, offset: int
) -> Message | None:
    """Returns the message at an offset of a queue; None if there is none.

    Raises ClientError.
    """
    request = broker_pb2.PullRequest(
        topic=topic, queue_id=queue_id, offset=offset, offset_end=offset + 1
    )
    with connection.faults():
        answers = list(connection.pull(request, connection.seconds_max))
    for answer in answers:
        for message in pulled_messages(request, offset, answer)[0]:
            return message
    return None
