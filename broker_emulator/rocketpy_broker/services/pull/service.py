"""The pull service: reads of a queue, with long polling.

A pull with a filter, by tags codes or an expression, returns rising queue offsets with gaps. Each
`next_offset` is after all examined messages. The service reads the queue in steps of bounded
length:

- A step without a match is reported with NO_MATCHED_MESSAGE, PULL_RETRY_IMMEDIATELY and no records;
  the call continues by itself. At the end of the queue it is the last response.
- A call with `offset_end` has examined its whole range at a response with code SUCCESS and
  `next_offset` of `offset_end`. That response has records, or else NO_MATCHED_MESSAGE.
- A held call silently skips messages that do not match. At its deadline the answer is
  PULL_NOT_FOUND, and `next_offset` is after them.

Lost records are reported as without a filter. With tags it is at the queue offset of the first
lost record that matches; with an expression at the first lost record, since its properties are
lost, too.

Held calls wait in `long_polling`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.filters.service import Sql92Filter
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.pull.matching_reader import MatchingReader
from rocketpy_broker.services.pull.response_buffer import ResponseBufferLimiter
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey, ReadLimits

NO_END = 1 << 62
# Responses up to this size are sent at once; larger ones take a scheduler slot.
SMALL_BYTES_MAX = 64 << 10
_EMPTY_QUEUE = (
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)

_GOING_ON = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)

_CODE_BY_STATUS = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def response_code(result: GetMessageResult, offset: int, offset_end: int) -> ResponseCode:
    """Returns the response code for the result of a read from `offset` on.

    A queue without messages has offset 0 only; any other offset has moved. The read of a range
    without a match is successful.
    """
    if result.status is GetMessageStatus.NO_MATCHED_MESSAGE and result.next_offset >= offset_end:
        return ResponseCode.SUCCESS
    if result.status in _EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODE_BY_STATUS[result.status]


@dataclass(frozen=True, slots=True)
class PullCommand:
    """A checked pull request; `limits` apply to one response, `sql92` is applied within them."""

    queue: QueueKey
    offset: int
    offset_end: int
    limits: ReadLimits
    wait_ms: int
    sql92: Sql92Filter | None = None


class PullService:
    """The service that reads queues for pulls and holds calls."""

    def __init__(
        self, store: MessageStore, held: LongPollWaiters, unread: ResponseBufferLimiter
    ) -> None:
        self._store = store
        self.unread = unread
        self._matching = MatchingReader(store)
        self.held = held

    async def pull(
        self, command: PullCommand, renewed: Callable[[], PullCommand] | None = None
    ) -> AsyncIterator[GetMessageResult]:
        """Yields all stored messages in parts; at least one result.

        Calls `renewed` before each read but the first for the command to continue with; it may
        raise. Raises ResponseBufferFullError.
        """
        renew = renewed or (lambda: command)
        deadline_ms = self.held.deadline_ms(command.wait_ms)
        result = await self._get(command, command.offset)
        # Holds the call while the queue has no wanted message up to its end.
        while _is_waitable(command, result) and await self.held.wait([command.queue], deadline_ms):
            command = renew()
            result = await self._get(command, result.next_offset)
        is_large = _is_large(result)
        if is_large:
            await take_slot("pull")
        with self.unread.reserve(result.byte_count):
            yield result
        while result.status in _GOING_ON:
            if is_large:
                await take_slot("pull")
            offset = result.next_offset
            if offset >= min(command.offset_end, self._store.range_of(command.queue).max_offset):
                return
            command = renew()
            result = await self._get(command, offset)
            is_large = _is_large(result)
            with self.unread.reserve(result.byte_count):
                yield result

    def moved(self, queue: QueueKey, offset: int) -> GetMessageResult:
        """Returns the result for a pull that is to continue at `offset`, without a read."""
        bounds = self._store.range_of(queue)
        status = GetMessageStatus.OFFSET_RESET
        return GetMessageResult(status, offset, bounds.min_offset, bounds.max_offset)

    async def _get(self, command: PullCommand, offset: int) -> GetMessageResult:
        """Reads messages; no other task runs after the last read, so no wake-up is missed."""
        queue, end, limits = command.queue, command.offset_end, self.unread.limits(command.limits)
        if command.sql92 is not None:
            return await self._matching.get_message(queue, offset, end, limits, command.sql92)
        return self._store.get_message(queue, offset, end, limits)


def _is_waitable(command: PullCommand, result: GetMessageResult) -> bool:
    if result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
        return result.max_offset <= result.next_offset < command.offset_end
    at_end = result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    return at_end or (result.status in _EMPTY_QUEUE and command.offset == 0)


def _is_large(result: GetMessageResult) -> bool:
    """True if the result takes time to send; so will the following ones."""
    return result.byte_count > SMALL_BYTES_MAX
