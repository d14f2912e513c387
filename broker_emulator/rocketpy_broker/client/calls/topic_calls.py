"""Calls about topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy_broker.client import topics as topic_client
from rocketpy_broker.client.calls.arguments import check_kind
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.errors import RefusedError
from rocketpy_broker.client.topics import Topic


class TopicCalls(BrokerCalls):
    """Calls that create, change and delete topics."""

    @call
    def create_topic(
        self,
        topic: str,
        queues: int = topic_client.QUEUES_DEFAULT,
        *,
        exist_ok: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Creates `topic` with `queues` queues to read and to write, 8 by default.

        Raises ClientError if it exists; with `exist_ok` the existing topic stays as it is.
        `attributes` are RocketMQ's, such as `{"message.type": "FIFO"}`.
        """
        check_kind("attributes", attributes, Mapping | None, "a dict of str")
        with self._connection() as connection:
            if exist_ok and topic_client.topic_exists(connection, topic):
                return
            try:
                topic_client.create_topic(connection, topic, queues, attributes=attributes)
            except RefusedError:
                # Another client may have created it meanwhile.
                if not (exist_ok and topic_client.topic_exists(connection, topic)):
                    raise

    @call
    def update_topic(
        self,
        topic: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        removed_attributes: Sequence[str] = (),
    ) -> Topic:
        """Changes the named settings of `topic` and returns the topic.

        `perm`: 4 is reading, 2 writing, 6 both. `attributes` are set, `removed_attributes` removed.
        """
        check_kind("attributes", attributes, Mapping | None, "a dict of str")
        with self._connection() as connection:
            settings = topic_client.settings(
                topic,
                attributes,
                removed_attributes,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                order=order,
            )
            return topic_client.update_topic(connection, settings)

    @call
    def topic(self, topic: str) -> Topic:
        """Returns the topic with all its settings."""
        with self._connection() as connection:
            return topic_client.get_topic(connection, topic)

    @call
    def empty_topic(self, topic: str) -> None:
        """Removes the messages that `topic` has now; its settings and offsets stay."""
        with self._connection() as connection:
            topic_client.empty_topic(connection, topic)

    @call
    def delete_topic(self, topic: str) -> None:
        """Deletes `topic` with all its messages and all progress in it."""
        with self._connection() as connection:
            topic_client.delete_topic(connection, topic)

    @call
    def topics(self) -> list[str]:
        """Returns the names of all topics but the broker's own and the groups' retry topics."""
        with self._connection() as connection:
            return [found.topic for found in topic_client.list_topics(connection)]
