"""Transactions of one message: prepared, then committed or rolled back.

The broker checks an acknowledged half message until its transaction ends. `groups.listening` passes
the checks to a producer that has sent a heartbeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rocketpy_broker.client.connection import BrokerConnection, only, raise_refusal
from rocketpy_broker.client.errors import MessageIllegalError, UnreadableError
from rocketpy_broker.client.messages.sender import MessageChecker
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, append_request
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.runtime.time_format import EPOCH
from rocketpy_proto.rocketpy.v1 import broker_pb2, transactions_pb2


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction: its producer group and the place of its half message."""

    transaction_id: str
    producer_group: str
    commit_log_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that has not ended, and its message's queue. Times have the time zone UTC."""

    transaction: Transaction
    topic: str
    queue_id: int
    born_timestamp: datetime
    check_times: int


def prepare(
    connection: BrokerConnection,
    topic: str,
    producer_group: str,
    message: OutgoingMessage,
    born_ms: int | None = None,
) -> Transaction:
    """Sends a half message; no consumer reads it before the commit.

    Its age counts from `born_ms`, ms since 1970, or else from now.
    Raises MessageIllegalError, UnreachableError, CallFailedError, RefusedError.
    """
    fault = MessageChecker(connection, topic).fault(message)
    if fault is None and not producer_group:
        fault = "a transaction needs a producer group"
    if fault is not None:
        raise MessageIllegalError(0, fault)
    now_ms = born_ms or SystemClock().now_ms()
    request, msg_id = append_request(topic, message, now_ms, producer_group)
    with connection.faults():
        call = connection.broker.Append(iter([request]), timeout=connection.seconds_max)
        answer: broker_pb2.AppendResponse = only(list(call), topic)
    raise_refusal(answer.status)
    if answer.record_count != 1:
        raise UnreadableError(
            f"the broker acknowledged {answer.record_count} half messages, but 1 was sent"
        )
    return Transaction(msg_id, producer_group, answer.physical_offset, answer.queue_offset)


def end(
    connection: BrokerConnection,
    transaction: Transaction,
    *,
    commit: bool,
    from_check: bool = False,
) -> None:
    """Commits or rolls back a transaction; may be repeated after a lost answer.

    Raises UnreachableError, CallFailedError, RefusedError. A transaction of another group, or one
    that has ended with the other outcome, is refused.
    """
    request = transactions_pb2.EndTransactionRequest(
        producer_group=transaction.producer_group,
        transaction_id=transaction.transaction_id,
        commit_log_offset=transaction.commit_log_offset,
        queue_offset=transaction.queue_offset,
        resolution=transactions_pb2.COMMIT if commit else transactions_pb2.ROLLBACK,
        from_transaction_check=from_check,
    )
    connection.ask(connection.transactions.EndTransaction, request)


def list_open(
    connection: BrokerConnection, producer_group: str = "", transaction_id: str = ""
) -> list[OpenTransaction]:
    """Returns the oldest open transactions, at most 1,000.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = transactions_pb2.ListTransactionsRequest(
        producer_group=producer_group, transaction_id=transaction_id
    )
    response = connection.ask(connection.transactions.ListTransactions, request)
    return [
        OpenTransaction(
            Transaction(
                one.transaction_id, one.producer_group, one.commit_log_offset, one.queue_offset
            ),
            one.topic,
            one.queue_id,
            EPOCH + timedelta(milliseconds=one.born_timestamp_ms),
            one.check_times,
        )
        for one in response.transactions
    ]
