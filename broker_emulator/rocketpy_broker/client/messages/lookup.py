"""Lookup of single messages by key, tag, offset message id or offset."""

from __future__ import annotations

from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.client.messages.model import decode_messages
from rocketpy_broker.client.messages.pull_answers import pulled_messages
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2


def query_messages(
    connection: BrokerConnection, topic: str, key: str, count_max: int, *, tag: str = ""
) -> list[Message]:
    """Returns the newest messages of `topic` with `key`, or instead with `tag`, oldest first.

    Raises UnreachableError, RefusedError, UnreadableError.
    """
    request = admin_pb2.QueryMessageRequest(topic=topic, key=key, tag=tag, count_max=count_max)
    response = connection.ask(connection.admin.QueryMessage, request)
    return list(decode_messages(response.records, response.record_sizes))


def view_message(connection: BrokerConnection, offset_msg_id: str) -> Message:
    """Returns the message with this id. Raises UnreachableError, RefusedError, UnreadableError."""
    request = admin_pb2.ViewMessageRequest(offset_msg_id=offset_msg_id)
    response = connection.ask(connection.admin.ViewMessage, request)
    for message in decode_messages(response.records, response.record_sizes):
        return message
    raise UnreadableError(f"the broker's answer for {offset_msg_id!r} holds no message")


def message_at(
    connection: BrokerConnection, topic: str, queue_id: int, offset: int
) -> Message | None:
    """Returns the message at an offset of a queue; None if there is none.

    Raises UnreachableError, RefusedError, UnreadableError.
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
