"""Calls that look up messages, lag and statistics."""

from __future__ import annotations

from datetime import datetime

from rocketpy_broker.client.calls.arguments import check_time
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.messages.lookup import query_messages, view_message
from rocketpy_broker.client.offsets import GroupLag, query_lag
from rocketpy_broker.client.statistics import Statistic, list_statistics
from rocketpy_broker.messages.stored import Message


class QueryCalls(BrokerCalls):
    """Calls that find single messages, the lag of groups and statistics."""

    @call
    def query(
        self,
        topic: str,
        key: str = "",
        *,
        tag: str = "",
        count: int = 0,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Message]:
        """Returns the newest messages of `topic` with this key, unique id or tag, oldest first.

        `count` limits them; 0 is the broker's default, 32. `since` and `until` are store times
        with a time zone, both included.
        """
        check_time(since)
        check_time(until)
        with self._connection() as connection:
            return query_messages(connection, topic, key, count, tag=tag, since=since, until=until)

    @call
    def view(self, offset_msg_id: str) -> Message:
        """Returns the message with this offset message id."""
        with self._connection() as connection:
            return view_message(connection, offset_msg_id)

    @call
    def lag(self, topic: str, group: str) -> GroupLag:
        """Returns the lag of a consumer group: in all (`total`) and in each of `queues`."""
        with self._connection() as connection:
            return query_lag(connection, topic, group)

    @call
    def statistics(self, topic: str = "", group: str = "") -> list[Statistic]:
        """Returns counts of messages put, got and sent back in the last minute, hour and day.

        They are of one topic, of one group, or of all.
        """
        with self._connection() as connection:
            return list_statistics(connection, topic=topic, group=group)
