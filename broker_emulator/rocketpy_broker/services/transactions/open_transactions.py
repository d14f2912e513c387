"""Listing of open transactions for an operator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import HalfMessage, TransactionMessages
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import MessageStore

COUNT_MAX = 1_000
# Half messages read, and queue offsets skipped, in one scheduler slot.
TURN_READS, TURN_OFFSETS = 5, 5_000
READS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Half messages of open transactions, without bodies; `is_complete` if none is left out."""

    halves: list[HalfMessage]
    is_complete: bool


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
        self, producer_group: str, transaction_id: str, count_max: int
    ) -> OpenTransactions:
        """Returns the oldest `count_max` of a group, or with an id; empty stands for any.

        Raises ParameterIllegalError.
        """
        if not 0 <= count_max <= COUNT_MAX:
            raise ParameterIllegalError("count_max", count_max, f"0 to {COUNT_MAX}")
        count_max = count_max or COUNT_MAX
        found: list[HalfMessage] = []
        end = self._store.range_of(HALF_QUEUE).max_offset
        reads = 0
        for offset in range(self._table.next_half, end):
            if offset % TURN_OFFSETS == 0:
                await take_slot()
            if self._table.is_over(offset):
                continue
            if len(found) == count_max or reads == READS_MAX:
                return OpenTransactions(found, is_complete=False)
            half = self._messages.half(offset)
            reads += 1
            if reads % TURN_READS == 0:
                await take_slot()
            if half is not None and self._is_wanted(half, producer_group, transaction_id):
                found.append(HalfMessage(replace(half.record, body=b""), b""))
        return OpenTransactions(found, is_complete=True)

    def _is_wanted(self, half: HalfMessage, producer_group: str, transaction_id: str) -> bool:
        offset = half.record.queue_offset
        return (
            producer_group in ("", half.producer_group)
            and transaction_id in ("", half.transaction_id)
            and self._table.newest(half.first_offset, offset) == offset
        )
