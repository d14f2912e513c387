"""End of transactions: the message goes to its queue, or nowhere, once.

The final message is appended first, then the op message after it. A crash between them leaves a
final message that names its half message; the next start finds it. So an answered transaction is
never decided again. A repeated decision gets the same answer; a different one is refused. The state
is in the table.
Source: docs/design/broker_behaviour.md section 7.2.
"""

from __future__ import annotations

import contextlib

from rocketpy_broker.config import TransactionTimes
from rocketpy_broker.errors import ParameterIllegalError, TopicNotExistError, TransactionEndError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services import caller
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.replication.errors import SlaveNotAvailableError
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.messages import (
    IMMUNITY_SECONDS,
    HalfMessage,
    Operation,
    TransactionMessages,
)
from rocketpy_broker.services.transactions.progress import TransactionProgress
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import transactions_pb2

Request = transactions_pb2.EndTransactionRequest
DECISIONS = {
    transactions_pb2.COMMIT: Operation.COMMIT,
    transactions_pb2.ROLLBACK: Operation.ROLLBACK,
}


class TransactionService:
    """The service that ends transactions."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        messages: TransactionMessages,
        table: TransactionTable,
        progress: TransactionProgress,
        group_commit: GroupCommit,
        clock: Clock,
        times: TransactionTimes,
    ) -> None:
        self._store = store
        self._topics = topics
        self._messages = messages
        self._table = table
        self._progress = progress
        self._group_commit = group_commit
        self._clock = clock
        self.times = times
        # Called with each decision, once.
        self.ended = Listeners[[HalfMessage, Operation]]()

    async def end(self, request: Request) -> None:
        """Commits or rolls back; durable on return, as far as flush type and role promise.

        Raises ParameterIllegalError, TransactionEndError, TopicNotExistError, StoreClosedError,
        StoreBusyError, RecordIllegalError. Raises UnconfirmedError if the end is stored, but the
        disk or slaves have not confirmed it.
        """
        decision = DECISIONS.get(request.resolution)
        if decision is None:
            raise ParameterIllegalError("resolution", request.resolution, "COMMIT or ROLLBACK")
        await self._group_commit.admission.write_over()
        half = self._messages.half_at(request.commit_log_offset)
        if half is None:
            raise TransactionEndError(
                "Find prepared transaction message failed: there is no half message at log offset "
                f"{request.commit_log_offset}"
            )
        caller.check_sendable(half.real_queue.topic)
        self._check(half, request)
        if not self._is_repeated(half, decision):
            self._decide(half, decision)
        self._progress.write_ops()
        # RocketMQ's rule: a master without slaves near its log's end does not wait.
        with contextlib.suppress(SlaveNotAvailableError):
            await self._group_commit.acknowledged(self._store.positions().log_end)

    def _check_time(self, half: HalfMessage) -> None:
        """Raises TransactionEndError if the producer must wait for the check."""
        record = half.record
        if record.properties.get(IMMUNITY_SECONDS):
            timeout_ms = self.times.timeout_ms
            immunity_ms = max(half.immunity_ms(timeout_ms), timeout_ms)
            age_ms = self._clock.now_ms() - record.born_timestamp_ms
            if age_ms > immunity_ms:
                raise TransactionEndError(
                    f"the transaction is {age_ms} ms old and its time of {immunity_ms} ms has "
                    "ended; wait for the broker's check",
                    ResponseCode.ILLEGAL_OPERATION,
                )

    def _check(self, half: HalfMessage, request: Request) -> None:
        record = half.record
        # No check follows for a transaction that has ended.
        if not (request.from_transaction_check or self._has_ended(half)):
            self._check_time(half)
        if half.producer_group != request.producer_group:
            raise TransactionEndError(
                f"The producer group wrong: {request.producer_group!r:.200} did not send this "
                "message"
            )
        if record.queue_offset != request.queue_offset:
            raise TransactionEndError(
                f"The transaction state table offset wrong: it is not {request.queue_offset}"
            )
        if request.transaction_id and request.transaction_id != half.transaction_id:
            raise TransactionEndError(
                f"The transaction id wrong: {request.transaction_id!r:.200} is another message's"
            )

    def _has_ended(self, half: HalfMessage) -> bool:
        return self._table.is_over(self._table.newest(half.first_offset, half.record.queue_offset))

    def _is_repeated(self, half: HalfMessage, decision: Operation) -> bool:
        """True if it was decided in the same way before. Raises TransactionEndError for another."""
        if not self._has_ended(half):
            return False
        found = self._table.operation(half.first_offset, half.record.queue_offset)
        if found is decision:
            return True
        known = {Operation.COMMIT: "was committed", Operation.ROLLBACK: "was rolled back"}
        past = known.get(found or Operation.FOREIGN, "has ended")
        if found is Operation.DISCARDED:
            past = "was given up: its producer did not report its end"
        raise TransactionEndError(
            f"transaction {half.transaction_id!r:.200} {past} before; nothing has changed",
            ResponseCode.ILLEGAL_OPERATION,
        )

    def _decide(self, half: HalfMessage, decision: Operation) -> None:
        begin = self._store.positions().log_end
        offset = self._table.newest(half.first_offset, half.record.queue_offset)
        if decision is Operation.COMMIT:
            topic = half.real_queue.topic
            self._topics.get(topic)
            self._store.deletions.check(topic)
            if self._messages.is_deleted(half):
                raise TopicNotExistError(topic)
            self._messages.append_final(half)
            # The message is stored now, even if the op message fails.
            self._progress.decided(begin, offset)
        else:
            self._store.check_writable()
            self._progress.rolled_back(offset)
        self._table.finish(half.first_offset, decision)
        self.ended(half, decision)
