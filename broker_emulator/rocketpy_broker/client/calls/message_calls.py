"""Calls that send, read and resend messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from rocketpy_broker.client.calls.arguments import (
    BYTES,
    Body,
    check_count,
    check_delay,
    check_kind,
    check_start,
    check_time,
    outgoing,
)
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.messages import retries
from rocketpy_broker.client.messages.group_reader import GroupReader
from rocketpy_broker.client.messages.resend import ResentMessage, resend_dead_letters
from rocketpy_broker.client.messages.sender import MessageSender
from rocketpy_broker.client.messages.topic_reader import TopicReader
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, SentMessage
from rocketpy_broker.messages.stored import Message


class MessageCalls(BrokerCalls):
    """Calls about the messages of topics, consumer groups and dead letters."""

    # The queue of the next message that names no queue.
    _turn = 0

    def send(
        self,
        topic: str,
        body: Body | Iterable[Body],
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        deliver_at: datetime | None = None,
    ) -> list[SentMessage]:
        """Sends a message for each body and returns their ids and places, in order.

        Texts are encoded in UTF-8. Without `queue_id` the messages are spread over the queues,
        starting at queue 0. `delay_level` delays the messages: 1 is 1 s, 18 is 2 h. So does
        `deliver_at`, a time with a time zone. Properties that delay a message are refused. All
        bodies are checked before the first is sent.
        """
        with self._declared_errors():
            check_delay(delay_level, deliver_at)
            # Iteration over a mapping would send its keys.
            is_single = isinstance(body, str | BYTES | Mapping) or not isinstance(body, Iterable)
            bodies = [body] if is_single else body
            messages = [
                replace(message, delay_level=delay_level, deliver_at=deliver_at)
                for message in outgoing(bodies, tags, keys, properties or {}, queue_id)
            ]
        return self._send(topic, messages)

    @call
    def _send(self, topic: str, messages: Sequence[OutgoingMessage]) -> list[SentMessage]:
        with self._connection() as connection:
            sender = MessageSender(connection, topic, self._turn)
            sender.checker.check(messages)
            sent = list(sender.send(messages))
            self._turn = sender.turn
            return sent

    @call
    def send_back(self, message: Message | str, group: str, *, delay_level: int = 0) -> str:
        """Sends a message back to `group`; returns `retry`, `deadLetter` or `dropped`.

        `message` is a message that was read, or its `offset_msg_id`. Level 0 takes the delay from
        the number of failures; 1 is 1 s, 18 is 2 h. A level below 0 makes the message a dead
        letter, in `%DLQ%` + group.
        """
        check_kind("message", message, Message | str, "a message or its offset_msg_id")
        offset_msg_id = message if isinstance(message, str) else message.offset_msg_id
        with self._connection() as connection:
            return retries.send_back(connection, group, offset_msg_id, delay_level)

    @call
    def messages(self, topic: str, *, since: datetime | None = None) -> list[Message]:
        """Returns all messages of `topic`, in the order in which they were stored.

        `since` is a time with a time zone; it leaves out messages stored before it.
        """
        check_time(since)
        with self._connection() as connection:
            return list(TopicReader(connection, topic).first(since=since))

    @call
    def pull(
        self,
        topic: str,
        group: str,
        count: int | None = None,
        *,
        commit: bool = True,
        start: str = "earliest",
    ) -> list[Message]:
        """Returns messages of `topic` that `group` has not consumed, queue by queue.

        `count` limits them. The group's progress is committed, and the next call continues there.
        With `commit` False the progress stays. `start` is for queues without progress of the group:
        `earliest`, or `latest` for messages that come after this call.
        """
        check_count(count)
        check_start(start, is_committing=commit)
        with self._connection() as connection:
            reader = GroupReader(
                connection, topic, group, is_committing=commit, is_from_latest=start == "latest"
            )
            return list(reader.messages(count))

    @call
    def dead_letters(self, group: str, *, since: datetime | None = None) -> list[Message]:
        """Returns the dead letters of `group`, oldest first.

        `since` is a time with a time zone; it leaves out dead letters stored before it.
        """
        check_time(since)
        with self._connection() as connection:
            return list(retries.dead_letters(connection, group, since=since))

    @call
    def resend_dead_letters(
        self, group: str, letters: Sequence[Message], *, topic: str | None = None
    ) -> list[ResentMessage]:
        """Sends dead letters of `group` to `topic`, or each to the topic of its first send.

        They keep unique ids, keys, tags and properties. The dead letters stay.
        """
        for letter in letters:
            check_kind("a dead letter", letter, Message, "a message of `dead_letters`")
        with self._connection() as connection:
            return list(resend_dead_letters(connection, group, letters, topic))
