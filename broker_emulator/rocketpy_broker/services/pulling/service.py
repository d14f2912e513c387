"""Pull: read a queue from an offset on, and hold the call while there is nothing.

A pull with a filter, by tags codes (row C03) or by an expression (row C04), gives rising queue
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
Rows C01 (as far as topics go), C03 (by hash), C04, C05, C08, C12, S11, S12.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import ParameterIllegalError, PermissionDeniedError
from rocketpy_broker.hooks import ConsumeContext, ConsumeOutcome
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.filters.service import FilterService, FilterText, Sql92Filter
from rocketpy_broker.services.holding.calls import HeldCalls
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.pulling.matching import MatchingReader
from rocketpy_broker.services.topics.config import READ_WRITE, Perm
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey, ReadLimits

NO_END = 1 << 62
MASTER_ID, SLAVE_ID = 0, 1
_EMPTY_QUEUE = (
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)

_GOING_ON = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)

# Row C05: what the store found, as the code that a client acts upon.
_CODE_BY_STATUS = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


def response_code(result: GetMessageResult, offset: int, offset_end: int) -> ResponseCode:
    """The response code for what was found from `offset` on.

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
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        filters: FilterService,
        held: HeldCalls,
        limits: Limits,
        *,
        slave_read_enable: bool = False,
        broker_name: str = "",
        broker_permission: int = int(READ_WRITE),
        hooks: HookChain | None = None,
    ) -> None:
        self._store = store
        self._matching = MatchingReader(store)
        self._topics = topics
        self._filters = filters
        self._limits = limits
        self._slave_read_enable = slave_read_enable
        self._broker_name = broker_name
        self._broker_permission = broker_permission
        self._hooks = hooks or HookChain([])
        self.held = held
        # Told of topic, group, messages and bytes of each result that has some.
        self.on_got: Callable[[str, str, int, int], None] = lambda *_: None

    def command(
        self,
        queue: QueueKey,
        offset: int,
        offset_end: int,
        response_bytes_max: int,
        wait_ms_max: int,
        filter_text: FilterText,
    ) -> PullCommand:
        """Check a request; 0 stands for no end and for the default size.

        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError,
        SubscriptionParseError, ParameterIllegalError.
        """
        if not self._broker_permission & Perm.READ:
            raise PermissionDeniedError(
                f"the broker[{self._broker_name}] pulling message is forbidden"
            )
        self._topics.check_readable(queue.topic, queue.queue_id)
        wanted = self._filters.filter_of(filter_text)
        limits = self._limits
        if offset < 0:
            raise ParameterIllegalError("offset", offset, "0 or more")
        if offset_end and offset_end <= offset:
            raise ParameterIllegalError("offset_end", offset_end, f"0 or more than {offset}")
        if response_bytes_max < 0:
            raise ParameterIllegalError("response_bytes_max", response_bytes_max, "0 or more")
        if not 0 <= wait_ms_max <= limits.pull_wait_ms_max:
            accepted = f"0 to {limits.pull_wait_ms_max}"
            raise ParameterIllegalError("wait_ms_max", wait_ms_max, accepted)
        wish = response_bytes_max or limits.pull_response_bytes
        bounds = ReadLimits.of_bytes(min(wish, limits.pull_response_bytes_max), wanted.tags_codes)
        return PullCommand(queue, offset, offset_end or NO_END, bounds, wait_ms_max, wanted.sql92)

    async def pull(
        self, command: PullCommand, consumer_group: str = ""
    ) -> AsyncIterator[GetMessageResult]:
        """Everything that is there, in pieces; at least one result."""
        if not self._hooks:
            async for result in self._pull(command):
                self._tell(command, consumer_group, result)
                yield result
            return
        context = ConsumeContext(consumer_group, *command.queue, command.offset)
        self._hooks.before_consume(context)
        async for result in self._pull(command):
            self._hooks.after_consume(context, _outcome(result))
            self._tell(command, consumer_group, result)
            yield result

    def _tell(self, command: PullCommand, consumer_group: str, result: GetMessageResult) -> None:
        if len(result.sizes):
            size_bytes = int(result.sizes.sum(dtype="int64"))
            self.on_got(command.queue.topic, consumer_group, len(result.sizes), size_bytes)

    async def _pull(self, command: PullCommand) -> AsyncIterator[GetMessageResult]:
        result = await self._first(command)
        yield result
        while result.status in _GOING_ON:
            offset = result.next_offset
            if offset >= min(command.offset_end, self._store.range_of(command.queue).max_offset):
                return
            result = await self._get(command, offset)
            yield result

    async def _first(self, command: PullCommand) -> GetMessageResult:
        """The first result; waits where nothing wanted is there up to the very end of the queue."""
        deadline_ms = self.held.deadline_ms(command.wait_ms)
        result = await self._get(command, command.offset)
        while self._is_waitable(command, result) and await self.held.wait(
            [command.queue], deadline_ms
        ):
            result = await self._get(command, result.next_offset)
        return result

    async def _get(self, command: PullCommand, offset: int) -> GetMessageResult:
        """Gives way to nobody behind its last look at the queue, so a wake-up is never missed."""
        if command.sql92 is not None:
            return await self._matching.get_message(
                command.queue, offset, command.offset_end, command.limits.bytes_max, command.sql92
            )
        return self._store.get_message(command.queue, offset, command.offset_end, command.limits)

    @staticmethod
    def _is_waitable(command: PullCommand, result: GetMessageResult) -> bool:
        if result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
            return result.max_offset <= result.next_offset < command.offset_end
        at_end = result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        return at_end or (result.status in _EMPTY_QUEUE and command.offset == 0)

    def suggested_broker_id(self, result: GetMessageResult) -> int:
        """Who to pull from next: a slave for data that must come from disk, where slaves serve."""
        return SLAVE_ID if result.is_cold and self._slave_read_enable else MASTER_ID


def _outcome(result: GetMessageResult) -> ConsumeOutcome:
    sizes = result.sizes
    return ConsumeOutcome(
        result.status.name, len(sizes), int(sizes.sum(dtype="int64")), result.next_offset
    )
