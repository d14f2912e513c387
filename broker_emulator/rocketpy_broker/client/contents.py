"""Removal of a broker's topics, groups and open transactions, except given ones."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.client import group_admin, test_calls, topics
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import RefusedError
from rocketpy_broker.client.messages import transactions
from rocketpy_proto.model import DEAD_LETTER_PREFIX, RETRY_PREFIX

OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


@dataclass(frozen=True, slots=True)
class Contents:
    """Names of topics and groups, and ids of open transactions.

    The topics include the groups' retry topics and dead letter topics.
    """

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    transactions: frozenset[str] = frozenset()

    def __or__(self, other: Contents) -> Contents:
        return Contents(
            self.topics | other.topics,
            self.groups | other.groups,
            self.transactions | other.transactions,
        )

    def __sub__(self, other: Contents) -> Contents:
        return Contents(
            self.topics - other.topics,
            self.groups - other.groups,
            self.transactions - other.transactions,
        )


def contents(connection: BrokerConnection) -> Contents:
    """Returns the broker's contents. Raises UnreachableError, CallFailedError, RefusedError."""
    return Contents(
        frozenset(_topics(connection)),
        frozenset(each.consumer_group for each in group_admin.list_groups(connection)),
        frozenset(each.transaction.transaction_id for each in transactions.list_open(connection)),
    )


def clear(connection: BrokerConnection, kept: Contents) -> None:
    """Removes all but `kept`. Raises UnreachableError, CallFailedError, RefusedError."""
    _roll_back(connection, kept.transactions)
    for group in [each.consumer_group for each in group_admin.list_groups(connection)]:
        if group not in kept.groups:
            group_admin.delete_group(connection, group, force=True)
    for topic in _topics(connection):
        if topic not in kept.topics:
            topics.delete_topic(connection, topic)
    test_calls.forget_writers(connection)


def _topics(connection: BrokerConnection) -> list[str]:
    own = [each.topic for each in topics.each_topic(connection)]
    every = topics.each_topic(connection, include_system=True)
    of_groups = [each.topic for each in every if each.topic.startswith(OF_GROUPS)]
    return list(dict.fromkeys(own + of_groups))


def _roll_back(connection: BrokerConnection, kept: frozenset[str]) -> None:
    """Rolls back open transactions, page by page; skips transactions that have ended meanwhile."""
    ended: set[str] = set()
    while True:
        found = [each.transaction for each in transactions.list_open(connection)]
        left = [each for each in found if each.transaction_id not in kept | ended]
        if not left:
            return
        for each in left:
            ended.add(each.transaction_id)
            try:
                transactions.end(connection, each, commit=False, from_check=True)
            except RefusedError:
                continue
