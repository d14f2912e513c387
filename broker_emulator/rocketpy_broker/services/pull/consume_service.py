"""Pulls as clients send them: checked, and between the hooks around consumption.

A pull without a consumer group is read and nothing else. One of a group makes the group where that
is allowed, commits the offset that it carries, and writes an event where its offset has moved; each
answer names the broker to pull from next, as the group is configured. Groups and their progress are
saved as their own modules say; a pull that is refused has done nothing.
RocketMQ commits after the read. Here it is before, since the answer may have many parts; a held
call has committed when it is held, in both.
Holds no state. Source: docs/design/broker_behaviour.md sections 2.2 to 2.10.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from rocketpy_broker.hooks import ConsumeContext, ConsumeOutcome
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.offsets.service import CommittedOffset, OffsetService
from rocketpy_broker.services.pull.checks import PullRequest
from rocketpy_broker.services.pull.moved_events import MovedOffset, MovedOffsetEvents
from rocketpy_broker.services.pull.outcome import Pulled, behind_ms
from rocketpy_broker.services.pull.service import PullCommand, response_code
from rocketpy_broker.services.pull.wiring import PullServices
from rocketpy_broker.store.values import GetMessageResult

MASTER_ID, SLAVE_ID = 0, 1


class PullAnswer(NamedTuple):
    """One of the answers to a pull, and the id of the broker to pull from next."""

    code: ResponseCode
    result: GetMessageResult
    suggested_broker_id: int


class ConsumeService:
    """Serves pulls of clients."""

    def __init__(
        self,
        pull: PullServices,
        configs: SubscriptionGroupManager,
        offsets: OffsetService,
        events: MovedOffsetEvents,
        hooks: HookChain,
        clock: Clock,
        *,
        slave_read_enable: bool,
    ) -> None:
        self._checks = pull.checks
        self._pulls = pull.pulls
        self._configs = configs
        self._offsets = offsets
        self._events = events
        self._hooks = hooks
        self._clock = clock
        self._slave_read_enable = slave_read_enable
        # Told of each answer for which messages were looked at.
        self.pulled = Listeners[[Pulled]]()

    async def pull(self, request: PullRequest) -> AsyncIterator[PullAnswer]:
        """Everything that is there, in pieces; at least one answer.

        Raises what PullChecks and OffsetService.check_commit raise: before the first answer, and of
        a group also between them and while the call is held, where it has become true. So does any
        pull of a topic's epoch where the topic is gone, or another one.
        """
        group, queue = request.consumer_group, request.queue
        begin_ms = self._clock.monotonic_ms()
        command = self._checks.command(request)
        committed = self._committed(request)
        if group:
            await self._make(group)
        context = ConsumeContext(group, queue.topic, queue.queue_id, request.offset)
        self._hooks.before_consume(context)
        reset_to = self._offsets.take_reset(group, queue) if group else None
        if reset_to is not None and reset_to != request.offset:
            # What it would commit is its old place.
            moved = self._pulls.moved(queue, reset_to)
            yield PullAnswer(response_code(moved, reset_to, 0), moved, MASTER_ID)
            return
        if committed:
            await self._offsets.commit(group, committed)

        def renewed() -> PullCommand:
            nonlocal begin_ms
            begin_ms = self._clock.monotonic_ms()
            return self._renewed(request, command)

        is_checked = bool(group or request.topic_epoch)
        offset = request.offset
        async for result in self._pulls.pull(command, renewed if is_checked else None):
            if command.sql92 is not None:
                # Others had their turns while it was looked for.
                self._checks.check_topic(request)
            code = response_code(result, offset, command.offset_end)
            if group and code is ResponseCode.PULL_OFFSET_MOVED:
                await self._events.write(MovedOffset(group, queue, offset, result.next_offset))
            if result.behind_bytes is not None:
                self.pulled(self._pulled(request, result, begin_ms))
            if self._hooks:
                self._hooks.after_consume(context, _outcome(result))
            yield PullAnswer(code, result, self._suggested_broker_id(group, result))
            offset = result.next_offset

    def _pulled(self, request: PullRequest, result: GetMessageResult, begin_ms: float) -> Pulled:
        return Pulled(
            request.queue,
            request.consumer_group,
            len(result.sizes),
            result.byte_count,
            int(self._clock.monotonic_ms() - begin_ms),
            result.behind_bytes or 0,
            behind_ms(result, self._clock.now_ms()),
            result.next_offset,
        )

    def _renewed(self, request: PullRequest, command: PullCommand) -> PullCommand:
        """What to go on with; of a plain pull only the topic is looked at again."""
        if request.consumer_group:
            return self._checks.command(request)
        self._checks.check_topic(request)
        return command

    def _committed(self, request: PullRequest) -> list[CommittedOffset]:
        """What the pull commits, if it may."""
        if request.commit_offset is None:
            return []
        committed = [CommittedOffset(request.queue, request.commit_offset)]
        self._offsets.check_commit(request.consumer_group, committed)
        return committed

    async def _make(self, group: str) -> None:
        """A group comes to be by its first pull, which was checked."""
        if group not in self._configs:
            self._configs.get_or_create(group)
            await self._configs.save_new()

    def _suggested_broker_id(self, group: str, result: GetMessageResult) -> int:
        """Returns a slave for data that must come from disk, where slaves serve."""
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
