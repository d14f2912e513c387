"""Calls about transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy_broker.client.calls.arguments import Body, check_kind, outgoing, wrong
from rocketpy_broker.client.calls.base import BrokerCalls, call
from rocketpy_broker.client.messages import transactions
from rocketpy_broker.client.messages.transactions import OpenTransaction, Transaction
from rocketpy_broker.messages.outgoing_message import OutgoingMessage


class TransactionCalls(BrokerCalls):
    """Calls that send half messages, commit them and roll them back."""

    def send_transaction(
        self,
        topic: str,
        body: Body,
        group: str,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> Transaction:
        """Sends a half message of the producer group `group`.

        No consumer sees it before `commit`. `rollback` discards it.
        """
        with self._declared_errors():
            check_kind("group", group, str, "the name of a producer group")
            [message] = outgoing([body], tags, keys, properties or {}, queue_id)
        return self._send_transaction(topic, group, message)

    @call
    def _send_transaction(self, topic: str, group: str, message: OutgoingMessage) -> Transaction:
        with self._connection() as connection:
            born_ms = self._born_ms(connection)
            return transactions.prepare(connection, topic, group, message, born_ms)

    @call
    def commit(self, transaction: Transaction | OpenTransaction) -> None:
        """Commits a transaction of `send_transaction` or `transactions`; may be repeated."""
        ended = _transaction(transaction)
        with self._connection() as connection:
            transactions.end(connection, ended, commit=True)

    @call
    def rollback(self, transaction: Transaction | OpenTransaction) -> None:
        """Rolls back a transaction of `send_transaction` or `transactions`; may be repeated."""
        ended = _transaction(transaction)
        with self._connection() as connection:
            transactions.end(connection, ended, commit=False)

    @call
    def transactions(self, group: str = "") -> list[OpenTransaction]:
        """Returns open transactions of one producer group, or of all, oldest first.

        The limit is 1,000.
        """
        with self._connection() as connection:
            return transactions.list_open(connection, group)


def _transaction(given: object) -> Transaction:
    """Returns the transaction of an argument. Raises ClientError for another object."""
    if isinstance(given, OpenTransaction):
        return given.transaction
    if isinstance(given, Transaction):
        return given
    accepted = "a transaction of `send_transaction` or of `transactions`"
    raise wrong("transaction", given, accepted)
