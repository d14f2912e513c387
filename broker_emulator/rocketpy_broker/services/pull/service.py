"""Pull: read a queue from an offset on, and hold the call while there is nothing.

A pull with a filter, by tags codes or by an expression, gives rising queue
offsets with gaps, and each `next_offset` lies behind everything that was looked at. The queue is
looked at in steps of bounded length:

- A step that found nothing is told with NO_MATCHED_MESSAGE, PULL_RETRY_IMMEDIATELY and without
  records; the call goes on by itself. At the end of the queue it is the last response.
- A call with `offset_end` has looked at all of its range when a response has code SUCCESS and a
  `next_offset` of `offset_end`: with records, or without any (then NO_MATCHED_MESSAGE as well).
- A held call passes silently over messages that do not match. At its deadline the answer is
  PULL_NOT_FOUND, and `next_offset` lies behind them.

Lost records are told as without a filter: by tags at the queue offset of the first one that
matches, by an expression at the first one, for what they had in them is lost as well.

Holds no state; held calls wait in `holding`.
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
# Responses up to this size are sent as they come; before larger ones others have their turns.
SMALL_BYTES_MAX = 64 << 10
_EMPTY_QUEUE = (
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)

_GOING_ON = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)

#
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
    """Returns the response code for what was found from `offset` on.

    A queue without messages has offset 0 only; any other offset has moved. A range in which
    nothing matches has been read successfully.
    """
    if result.status is GetMessageStatus.NO_MATCHED_MESSAGE and result.next_offset >= offset_end:
        return ResponseCode.SUCCESS
    if result.status in _EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODE_BY_STATUS[result.status]


@dataclass(frozen=True, slots=True)
class PullCommand:
    """A checked pull request. `limits` bound one response; `sql92` is applied within them."""

    queue: QueueKey
    offset: int
    offset_end: int
    limits: ReadLimits
    wait_ms: int
    sql92: Sql92Filter | None = None


class PullService:
    """Serves pulls."""

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
        """Everything that is there, in pieces; at least one result. Raises ResponseBufferFullError.

        Before each read but the first, `renewed` tells what to go on with; it may raise.
        """
        renew = renewed or (lambda: command)
        deadline_ms = self.held.deadline_ms(command.wait_ms)
        result = await self._get(command, command.offset)
        # Where nothing wanted is there up to the very end of the queue.
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
        """What a pull is told that is to go on elsewhere; nothing is read."""
        bounds = self._store.range_of(queue)
        status = GetMessageStatus.OFFSET_RESET
        return GetMessageResult(status, offset, bounds.min_offset, bounds.max_offset)

    async def _get(self, command: PullCommand, offset: int) -> GetMessageResult:
        """Gives way to nobody behind its last look at the queue, so a wake-up is never missed."""
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
    """True if it takes time to send, and so will what follows."""
    return result.byte_count > SMALL_BYTES_MAX
