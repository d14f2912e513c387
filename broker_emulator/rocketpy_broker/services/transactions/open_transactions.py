"""Transactions that are open, for an operator. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.messages import HalfMessage, TransactionMessages
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import MessageStore

COUNT_MAX = 1_000
# Half messages that are read, and places that are passed over, in one turn of the loop.
TURN_READS, TURN_OFFSETS = 5, 5_000
READS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Half messages, without bodies, of open transactions; `is_complete`: there are no others."""

    halves: list[HalfMessage]
    is_complete: bool


class TransactionListing:
    """Looks through the half topic."""

    def __init__(
        self, store: MessageStore, messages: TransactionMessages, table: TransactionTable
    ) -> None:
        self._store = store
        self._messages = messages
        self._table = table

    @property
    def open_count(self) -> int:
        """How many half messages are not over, of any group."""
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
