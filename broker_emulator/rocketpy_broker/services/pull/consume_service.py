"""Pulls of clients, with their checks, commits and consume hooks.

A pull without a consumer group only reads. A pull of a group creates the group where that is
allowed, and commits its offset. It writes an event where its offset has moved. Each answer names
the broker to pull from next, by the group's configuration. A refused pull changes nothing.
RocketMQ commits after the read. This broker commits before it, since the answer may have many
parts. In both, a held call has committed before it is held.
Source: docs/design/broker_behaviour.md sections 2.2 to 2.10.
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
    """A part of the answer to a pull, with the id of the broker to pull from next."""

    code: ResponseCode
    result: GetMessageResult
    suggested_broker_id: int


class ConsumeService:
    """The service for pulls of clients."""

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
        # Listeners for each answer that examined messages.
        self.pulled = Listeners[[Pulled]]()

    async def pull(self, request: PullRequest) -> AsyncIterator[PullAnswer]:
        """Yields all stored messages in parts; at least one answer.

        Raises the errors of PullChecks and OffsetService.check_commit before the first answer. For
        a group's pull it repeats the checks between answers and while the call is held. For a
        pull with a topic's epoch it then checks that the topic is still the same.
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
            # The commit would set the offset from before the reset.
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
                # The topic may have changed in the scheduler slots of other tasks.
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
        """Returns the command to continue with; a plain pull checks only the topic again."""
        if request.consumer_group:
            return self._checks.command(request)
        self._checks.check_topic(request)
        return command

    def _committed(self, request: PullRequest) -> list[CommittedOffset]:
        """Returns the offset that the pull commits, after its check."""
        if request.commit_offset is None:
            return []
        committed = [CommittedOffset(request.queue, request.commit_offset)]
        self._offsets.check_commit(request.consumer_group, committed)
        return committed

    async def _make(self, group: str) -> None:
        """Creates and saves a group on its first pull."""
        if group not in self._configs:
            self._configs.get_or_create(group)
            await self._configs.save_new()

    def _suggested_broker_id(self, group: str, result: GetMessageResult) -> int:
        """Returns a slave's id for data that must come from disk, if slaves may serve."""
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
