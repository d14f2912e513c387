"""LocalBroker's calls that look something up. Holds no state."""

from __future__ import annotations

from rocketpy_broker.client.messages.lookup import query_messages, view_message
from rocketpy_broker.client.messages.model import Message
from rocketpy_broker.client.offsets import GroupLag, query_lag
from rocketpy_broker.client.statistics import Statistic, list_statistics
from rocketpy_broker.embedded.calls import BrokerCalls, call


class QueryCalls(BrokerCalls):
    """Finds single messages, and the progress of groups."""

    @call
    def query(self, topic: str, key: str, *, count: int = 0) -> list[Message]:
        """Returns the newest messages of `topic` with this key or unique id, oldest first.

        At most `count` of them, 0 is the broker's own maximum.
        """
        with self._connection() as connection:
            return query_messages(connection, topic, key, count)

    @call
    def view(self, offset_msg_id: str) -> Message:
        """Returns the message with an offset message id."""
        with self._connection() as connection:
            return view_message(connection, offset_msg_id)

    @call
    def lag(self, topic: str, group: str) -> GroupLag:
        """How far a consumer group is behind: in all (`total`) and in each of `queues`."""
        with self._connection() as connection:
            return query_lag(connection, topic, group)

    @call
    def statistics(self, topic: str = "", group: str = "") -> list[Statistic]:
        """What topics and groups put, got and sent back, in the last minute, hour and day.

        Those of one topic, one group, or all.
        """
        with self._connection() as connection:
            return list_statistics(connection, topic=topic, group=group)
