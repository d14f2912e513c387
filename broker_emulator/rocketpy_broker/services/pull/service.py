"""The pull service: checks, commits, reads and long polling.

A pull without a consumer group only reads. A pull of a group creates the group where that is
allowed, and commits its offset. It writes an event where its offset has moved. Each answer names
the broker to pull from next, by the group's configuration. A refused pull changes nothing.
RocketMQ commits after the read. This broker commits before it, since the answer may have many
parts. In both, a held call has committed before it is held.

A pull with a filter, by tags codes or an expression, returns rising queue offsets with gaps. Each
`next_offset` is after all examined messages. The service reads the queue in steps of bounded
length:

- A step without a match is reported with NO_MATCHED_MESSAGE, PULL_RETRY_IMMEDIATELY and no records;
  the call continues by itself. At the end of the queue it is the last response.
- A call with `offset_end` has examined its whole range at a response with code SUCCESS and
  `next_offset` of `offset_end`. That response has records, or else NO_MATCHED_MESSAGE.
- A slave may have less than its master. So a slave holds a call from beyond its queue's end. Where
  a master answers PULL_OFFSET_MOVED, it answers PULL_RETRY_IMMEDIATELY with the requested offset.
- A held call silently skips messages that do not match. At its deadline the answer is
  PULL_NOT_FOUND, and `next_offset` is after them.

Lost records are reported as in a pull without a filter. With tags the reported queue offset is that
of the first lost record that matches. With an expression it is that of the first lost record, since
its properties are lost, too.
Source: docs/design/broker_behaviour.md sections 2.2 to 2.10.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import NamedTuple

from rocketpy_broker.hooks import ConsumeContext, ConsumeOutcome
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.offsets.service import CommittedOffset, OffsetService
from rocketpy_broker.services.pull.checks import PullChecks, PullCommand, PullRequest
from rocketpy_broker.services.pull.matching_reader import MatchingReader
from rocketpy_broker.services.pull.moved_events import MovedOffset, MovedOffsetEvents
from rocketpy_broker.services.pull.outcome import EMPTY_QUEUE, Pulled, response_code
from rocketpy_broker.services.pull.response_buffer import ResponseBufferLimiter
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey
from rocketpy_proto.model.codes import ResponseCode

MASTER_ID, SLAVE_ID = 0, 1
# Responses up to this size are sent at once; larger ones take a scheduler slot.
SMALL_BYTES_MAX = 64 << 10
_MOVED = ResponseCode.PULL_OFFSET_MOVED
_CONTINUED = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)


class PullAnswer(NamedTuple):
    """A part of the answer to a pull, with the id of the broker to pull from next."""

    code: ResponseCode
    result: GetMessageResult
    suggested_broker_id: int


class PullService:
    """The service for pulls of clients."""

    def __init__(
        self,
        store: MessageStore,
        checks: PullChecks,
        held: LongPollWaiters,
        configs: SubscriptionGroupManager,
        offsets: OffsetService,
        events: MovedOffsetEvents,
        hooks: HookChain,
        clock: Clock,
        *,
        slave_read_enable: bool,
    ) -> None:
        self._store = store
        self._checks = checks
        self._held = held
        self._configs = configs
        self._offsets = offsets
        self._events = events
        self._hooks = hooks
        self._clock = clock
        self._slave_read_enable = slave_read_enable
        self._matching = MatchingReader(store)
        self.unread = ResponseBufferLimiter()
        # Listeners for each answer that examined messages.
        self.pulled = Listeners[[Pulled]]()

    async def pull(self, request: PullRequest) -> AsyncGenerator[PullAnswer, None]:
        """Yields all stored messages in parts; at least one answer.

        Raises the errors of PullChecks and OffsetService.check_commit before the first answer, and
        ResponseBufferFullError. For a group's pull it repeats the checks between answers and while
        the call is held. For a pull with a topic's epoch it then checks that the topic is still the
        same.
        """
        group, queue = request.consumer_group, request.queue
        begin_ms = self._clock.monotonic_ms()
        command = self._checks.command(request)
        committed = self._committed(request)
        if group:
            await self.create_group(group)
        context = ConsumeContext(group, queue.topic, queue.queue_id, request.offset)
        self._hooks.before_consume(context)
        reset_to = self._offsets.take_reset(group, queue) if group else None
        if reset_to is not None and reset_to != request.offset:
            # Returns before the pull's commit, which would undo the reset.
            moved = self._moved(queue, reset_to)
            yield PullAnswer(response_code(moved, reset_to, 0), moved, MASTER_ID)
            return
        if committed:
            await self._offsets.commit(group, committed)
        deadline_ms = self._held.deadline_ms(command.wait_ms)
        result = await self._get(command, request.offset)
        while self._is_waitable(command, result) and await self._held.wait([queue], deadline_ms):
            command, begin_ms = self._renewed(request, command), self._clock.monotonic_ms()
            result = await self._get(command, result.next_offset)
        is_large = _is_large(result)
        if is_large:
            await take_slot("pull")
        offset = request.offset
        while True:
            with self.unread.reserve(result.byte_count):
                yield await self._answered(request, command, context, offset, result, begin_ms)
            if result.status not in _CONTINUED:
                return
            if is_large:
                await take_slot("pull")
            offset = result.next_offset
            if offset >= min(command.offset_end, self._store.range_of(queue).max_offset):
                return
            command, begin_ms = self._renewed(request, command), self._clock.monotonic_ms()
            result = await self._get(command, offset)
            is_large = _is_large(result)

    async def _get(self, command: PullCommand, offset: int) -> GetMessageResult:
        """Reads messages; no other task runs after the last read, so no wake-up is missed."""
        limits = self.unread.limits(command.limits)
        result = await self._matching.get_message(
            command.queue, offset, command.offset_end, limits, command.sql92
        )
        if self._is_slave and response_code(result, offset, command.offset_end) is _MOVED:
            # The offset may be right at the master.
            result = replace(result, next_offset=offset)
        return result

    @property
    def _is_slave(self) -> bool:
        return self._store.slave_refusal is not None

    def _is_waitable(self, command: PullCommand, result: GetMessageResult) -> bool:
        """True if the queue has no wanted message up to its end."""
        status, queue_end = result.status, result.max_offset
        if status is GetMessageStatus.NO_MATCHED_MESSAGE:
            return queue_end <= result.next_offset < command.offset_end
        if self._is_slave and result.next_offset > queue_end:
            return True
        at_end = status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        return at_end or (status in EMPTY_QUEUE and command.offset == 0)

    async def _answered(
        self,
        request: PullRequest,
        command: PullCommand,
        context: ConsumeContext,
        offset: int,
        result: GetMessageResult,
        begin_ms: float,
    ) -> PullAnswer:
        """Returns the answer for a read from `offset`, after its event, listeners and hooks."""
        group, queue = request.consumer_group, request.queue
        if command.sql92 is not None:
            # The topic may have changed in the scheduler slots of other tasks.
            self._checks.check_topic(request)
        code = response_code(result, offset, command.offset_end)
        if code is _MOVED and self._is_slave:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if group and code is _MOVED:
            await self._events.write(MovedOffset(group, queue, offset, result.next_offset))
        if result.behind_bytes is not None:
            latency_ms = int(self._clock.monotonic_ms() - begin_ms)
            self.pulled(Pulled.of(queue, group, result, self._clock.now_ms(), latency_ms))
        if self._hooks:
            self._hooks.after_consume(context, _outcome(result))
        return PullAnswer(code, result, self._suggested_broker_id(group, result))

    def _renewed(self, request: PullRequest, command: PullCommand) -> PullCommand:
        """Returns the command to continue with; a plain pull checks only the topic again."""
        if request.consumer_group:
            return self._checks.command(request)
        self._checks.check_topic(request)
        return command

    def _moved(self, queue: QueueKey, offset: int) -> GetMessageResult:
        """Returns the result for a pull that is to continue at `offset`, without a read."""
        bounds = self._store.range_of(queue)
        status = GetMessageStatus.OFFSET_RESET
        return GetMessageResult(status, offset, bounds.min_offset, bounds.max_offset)

    def _committed(self, request: PullRequest) -> list[CommittedOffset]:
        """Returns the offset that the pull commits, after its check."""
        if request.commit_offset is None:
            return []
        committed = [CommittedOffset(request.queue, request.commit_offset)]
        self._offsets.check_commit(request.consumer_group, committed)
        return committed

    async def create_group(self, group: str) -> None:
        """Creates and saves a group on its first use, after its checks."""
        if group not in self._configs:
            self._configs.get_or_create(group)
            await self._configs.save_new()

    def _suggested_broker_id(self, group: str, result: GetMessageResult) -> int:
        """Returns a slave's id for data that must come from disk, if slaves may serve.

        A slave serves each pull, and suggests the same broker as its master.
        """
        if not self._slave_read_enable:
            return MASTER_ID
        config = self._configs.find(group) if group else None
        if config is None:
            return SLAVE_ID if result.is_cold else MASTER_ID
        return config.which_broker_when_consume_slowly if result.is_cold else config.broker_id


def _outcome(result: GetMessageResult) -> ConsumeOutcome:
    return ConsumeOutcome(
        result.status.name, len(result.sizes), result.byte_count, result.next_offset
    )


def _is_large(result: GetMessageResult) -> bool:
    """True if the result takes time to send; so will the following ones."""
    return result.byte_count > SMALL_BYTES_MAX
