"""Listing of open transactions for an operator."""

from __future__ import annotations

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import HalfMessage, TransactionMessages
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.rocketpy.v1 import transactions_pb2

COUNT_MAX = 1_000
# Half messages read, and queue offsets skipped, in one scheduler slot.
SLOT_READS, SLOT_OFFSETS = 5, 5_000
READS_MAX = 20_000


class TransactionListing:
    """A reader of the half topic for open transactions."""

    def __init__(
        self, store: MessageStore, messages: TransactionMessages, table: TransactionTable
    ) -> None:
        self._store = store
        self._messages = messages
        self._table = table

    @property
    def open_count(self) -> int:
        """Number of open half messages, of any group."""
        return self._table.open_count(self._store.range_of(HALF_QUEUE).max_offset)

    async def open(
        self, request: transactions_pb2.ListTransactionsRequest
    ) -> transactions_pb2.ListTransactionsResponse:
        """Returns the oldest `count_max` open transactions of a group, or with an id.

        An empty group or id means any. Raises ParameterIllegalError.
        """
        if not 0 <= request.count_max <= COUNT_MAX:
            raise ParameterIllegalError("count_max", request.count_max, f"0 to {COUNT_MAX}")
        count_max = request.count_max or COUNT_MAX
        response = transactions_pb2.ListTransactionsResponse()
        end = self._store.range_of(HALF_QUEUE).max_offset
        reads = 0
        for offset in range(self._table.next_half, end):
            if offset % SLOT_OFFSETS == 0:
                await take_slot()
            if self._table.is_over(offset):
                continue
            if len(response.transactions) == count_max or reads == READS_MAX:
                return response
            half = self._messages.half(offset)
            reads += 1
            if reads % SLOT_READS == 0:
                await take_slot()
            if half is not None and self._is_wanted(half, request):
                response.transactions.append(_message(half))
        response.is_complete = True
        return response

    def _is_wanted(
        self, half: HalfMessage, request: transactions_pb2.ListTransactionsRequest
    ) -> bool:
        offset = half.record.queue_offset
        return (
            request.producer_group in ("", half.producer_group)
            and request.transaction_id in ("", half.transaction_id)
            and self._table.newest(half.first_offset, offset) == offset
        )


def _message(half: HalfMessage) -> transactions_pb2.OpenTransaction:
    record, queue = half.record, half.real_queue
    return transactions_pb2.OpenTransaction(
        transaction_id=half.transaction_id,
        producer_group=half.producer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_log_offset=record.physical_offset,
        queue_offset=record.queue_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        check_times=half.check_times,
    )
