"""Pops: reads that make messages invisible to their group for a time.

A pop of a topic reads its queues in turn, from the group's next offset. Each read with messages
appends a check point and moves the group, without an await in between. A crash before the answer
leaves the check point: the messages come again after their invisible time. One pop in five reads
the retry topic first; all other pops read it last. Messages of both topics wake a held pop. State
in memory: the numbers of held calls. Source: PopMessageProcessor, NotificationProcessor,
docs/design/storage.md section 15.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np

from rocketpy_broker.errors import ParameterIllegalError, StoreError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.groups.manager import check_not_own
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters, Waiter
from rocketpy_broker.services.pull.checks import NO_END, PullChecks, PullCommand, PullRequest
from rocketpy_broker.services.pull.matching_reader import MatchingReader
from rocketpy_broker.services.pull.outcome import Pulled
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.receipts.handle import ORDERED, pop_retry_topic
from rocketpy_broker.services.receipts.ordered import OrderedPops
from rocketpy_broker.services.receipts.popped import (
    ANY_QUEUE,
    COUNT_MAX,
    PollingFullError,
    Popped,
    PoppedQueue,
    PopRequest,
)
from rocketpy_broker.services.receipts.positions import PopPositions
from rocketpy_broker.services.receipts.revive_log import ReviveLog
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey
from rocketpy_proto.record import RecordBlock

RETRY_FIRST_EVERY = 5
QUEUES_A_SLOT = 100
# popPollingSize, popPollingMapSize: held calls of one group in one queue or topic, and of all.
POLLING_MAX, POLLING_TOTAL_MAX = 1_024, 100_000
ATTEMPT_ID_MAX = 255
# Reads of one queue while other pops move the group.
TRIES_MAX = 3
_MOVED = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class PopService:
    """The service for pops, peeks and notifications."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        checks: PullChecks,
        pulls: PullService,
        positions: PopPositions,
        ordered: OrderedPops,
        log: ReviveLog,
        held: LongPollWaiters,
        group_commit: GroupCommit,
        clock: Clock,
        broker_name: str,
        invisible_ms_max: int,
    ) -> None:
        self._store = store
        self._topics = topics
        self._checks = checks
        self._pulls = pulls
        self._positions = positions
        self._ordered = ordered
        self._log = log
        self._held = held
        self._group_commit = group_commit
        self._clock = clock
        self._broker_name = broker_name
        self._invisible_ms_max = invisible_ms_max
        self._matching = MatchingReader(store)
        self._turn = 0
        self._polling: Counter[tuple[str, str, int]] = Counter()
        self._polling_total = 0
        # Called with a pop that has found messages, and then failed or was cancelled.
        self.abandoned = Listeners[[PopRequest, Popped]]()

    async def pop(self, request: PopRequest) -> Popped:
        """Returns messages; none at the end of the hold. Check points are durable on return.

        Raises the errors of PullChecks, ParameterIllegalError, PollingFullError, StoreClosedError,
        StoreBusyError, TimerRefusedError, FlushTimeoutError.
        """
        self._check(request)
        command = self._command(request)
        await self._pulls.create_group(request.group)
        await self._positions.begin()
        await self._group_commit.admission.store_ready()
        deadline_ms = self._held.deadline_ms(request.wait_ms)
        with self._watched(request, request.line) as watch:
            popped = await self._popped(request, command)
            while not popped.queues and await self._wait(request, watch, deadline_ms):
                command = self._command(request)
                popped = await self._popped(request, command)
            if popped.rest_count:
                watch.pass_on()
        with self._abandoning(request, popped):
            await self._group_commit.wait(popped.end)
        return popped

    async def peek(self, request: PopRequest) -> Popped:
        """Returns messages that a pop would return; changes nothing. Raises as `pop` does."""
        self._check(request)
        popped = self._new(request)
        await self._pop_queues(request, self._command(request), popped, is_peek=True)
        return popped

    async def has_message(self, request: PopRequest) -> bool:
        """Returns True once a pop would find a message, matching or not; False after the hold.

        Raises the errors of PullChecks, ParameterIllegalError, PollingFullError.
        """
        self._command(request)
        await self._pulls.create_group(request.group)
        deadline_ms = self._held.deadline_ms(request.wait_ms)
        with self._watched(request) as watch:
            while not await self._has_rest(request):
                if not await self._wait(request, watch, deadline_ms):
                    return False
                self._command(request)
        return True

    def polling_count(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the number of held calls for a queue, or for any queue of a topic."""
        return self._polling[group, topic, queue_id]

    # --- Checks ---

    def _check(self, request: PopRequest) -> None:
        if not 1 <= request.count_max <= COUNT_MAX:
            raise ParameterIllegalError("maxMsgNums", request.count_max, f"1 to {COUNT_MAX}")
        if not 1 <= request.invisible_ms <= self._invisible_ms_max:
            accepted = f"1 to {self._invisible_ms_max}"
            raise ParameterIllegalError("invisibleTime", request.invisible_ms, accepted)

    def _command(self, request: PopRequest) -> PullCommand:
        """Returns the read of a queue after the checks of a pull. Raises the errors of `pop`."""
        check_not_own(request.group)
        if (length := len(request.attempt_id)) > ATTEMPT_ID_MAX:
            raise ParameterIllegalError("length of attemptId", length, f"0 to {ATTEMPT_ID_MAX}")
        return self._checks.command(
            PullRequest(
                QueueKey(request.topic, max(request.queue_id, 0)),
                filter_text=request.filter_text,
                consumer_group=request.group,
                count_max=request.count_max,
            )
        )

    # --- Holds ---

    @contextmanager
    def _watched(self, request: PopRequest, line: Hashable = None) -> Iterator[Waiter]:
        with self._held.watch(line) as watch:
            if request.queue_id == ANY_QUEUE:
                watch.add_topics([request.topic])
            else:
                watch.add_queues([QueueKey(request.topic, request.queue_id)])
            watch.add_topics([pop_retry_topic(request.group, request.topic)])
            yield watch

    async def _wait(self, request: PopRequest, watch: Waiter, deadline_ms: float) -> bool:
        """Waits for a message. Raises PollingFullError."""
        key = request.group, request.topic, request.queue_id
        if request.wait_ms <= 0:
            return False
        if self._polling[key] >= POLLING_MAX or self._polling_total >= POLLING_TOTAL_MAX:
            raise PollingFullError(
                f"polling full: {self._polling[key]} calls of group {request.group!r} wait for "
                f"topic {request.topic!r}, limit {POLLING_MAX}, and {self._polling_total} calls in "
                f"all, limit {POLLING_TOTAL_MAX}. Ask again later"
            )
        self._polling[key] += 1
        self._polling_total += 1
        try:
            is_woken = await watch.wait(min(deadline_ms, await self._free_ms(request)))
        finally:
            self._polling[key] -= 1
            self._polling_total -= 1
            if self._polling[key] == 0:
                del self._polling[key]
        watch.take_changes()
        return is_woken

    async def _free_ms(self, request: PopRequest) -> float:
        """Returns the monotonic time at which the first blocked queue is free; else infinity."""
        first_ms = math.inf
        if not request.is_ordered:
            return first_ms
        for number, queue in enumerate(self._queues(request), 1):
            until_ms = self._ordered.blocked_until(request.group, queue, request.attempt_id)
            first_ms = first_ms if until_ms is None else min(first_ms, until_ms)
            if number % QUEUES_A_SLOT == 0:
                await take_slot()
        return self._clock.monotonic_ms() + max(first_ms - self._clock.now_ms(), 1)

    # --- Reads ---

    def _queues(self, request: PopRequest) -> Iterator[QueueKey]:
        """Returns the queues in the order of this pop: retry queues first or last."""
        self._turn += 1
        own = iter([QueueKey(request.topic, request.queue_id)])
        if request.queue_id == ANY_QUEUE:
            own = self._rotated(request.topic)
        if request.is_ordered:
            return own
        retries = self._rotated(pop_retry_topic(request.group, request.topic))
        return chain(retries, own) if self._turn % RETRY_FIRST_EVERY == 0 else chain(own, retries)

    def _rotated(self, topic: str) -> Iterator[QueueKey]:
        config, turn = self._topics.find(topic), self._turn
        count = 0 if config is None else config.readable_queues
        return (QueueKey(topic, (turn + i) % count) for i in range(count))

    async def _has_rest(self, request: PopRequest) -> bool:
        for number, queue in enumerate(self._queues(request), 1):
            bounds = self._store.range_of(queue)
            offset = self._positions.find(request.group, queue)
            offset = bounds.min_offset if offset is None else offset
            if offset < bounds.max_offset and not self._is_blocked(request, queue):
                return True
            if number % QUEUES_A_SLOT == 0:
                await take_slot()
        return False

    def _new(self, request: PopRequest) -> Popped:
        revive_queue = self._log.next_queue()
        if request.is_ordered:
            revive_queue = QueueKey(revive_queue.topic, ORDERED)
        return Popped(self._clock.now_ms(), request.invisible_ms, revive_queue, self._broker_name)

    @contextmanager
    def _abandoning(self, request: PopRequest, popped: Popped) -> Iterator[None]:
        """Reports a pop with messages if the `with` block fails or is cancelled."""
        try:
            yield
        except BaseException:
            if popped.queues:
                self.abandoned(request, popped)
            raise

    async def _popped(self, request: PopRequest, command: PullCommand) -> Popped:
        popped = self._new(request)
        with self._abandoning(request, popped):
            await self._pop_queues(request, command, popped)
        return popped

    async def _pop_queues(
        self, request: PopRequest, command: PullCommand, popped: Popped, *, is_peek: bool = False
    ) -> None:
        """Adds messages of the queues, as many as wanted."""
        for number, queue in enumerate(self._queues(request), 1):
            if number % QUEUES_A_SLOT == 0:
                await take_slot()
            try:
                await self._pop_queue(request, command, queue, popped, is_peek=is_peek)
            except StoreError:
                if not popped.queues:
                    raise
                break

    async def _pop_queue(
        self,
        request: PopRequest,
        command: PullCommand,
        queue: QueueKey,
        popped: Popped,
        *,
        is_peek: bool,
    ) -> None:
        """Pops from one queue, after messages that do not match."""
        tries_left = TRIES_MAX
        while tries_left:
            is_full = popped.count >= request.count_max
            is_full = is_full or popped.byte_count >= command.limits.bytes_max
            # Only a pop that will read the queue may commit the group's first offset.
            offset = self._next_offset(request, queue, is_peek=is_peek or is_full)
            if self._is_blocked(request, queue):
                return
            rest_count = max(self._store.range_of(queue).max_offset - offset, 0)
            if not rest_count or is_full:
                popped.rest_count += rest_count
                return
            result = await self._read(request, command, queue, offset, popped.count)
            await self._group_commit.admission.write_over()
            # Other pops may have run meanwhile.
            is_moved = not is_peek and self._next_offset(request, queue, is_peek=False) != offset
            if is_moved or self._is_blocked(request, queue):
                tries_left -= 1
            elif len(result.sizes) or is_peek or result.next_offset <= offset:
                break
            else:
                self._positions.skip(request.group, queue, result.next_offset)
                await take_slot()
        else:
            return
        if len(result.sizes):
            self._take(request, queue, offset, result, popped, is_peek=is_peek)
            await take_slot()
        popped.rest_count += max(result.max_offset - result.next_offset, 0)

    def _is_blocked(self, request: PopRequest, queue: QueueKey) -> bool:
        if not request.is_ordered:
            return False
        return self._ordered.blocked_until(request.group, queue, request.attempt_id) is not None

    def _next_offset(self, request: PopRequest, queue: QueueKey, *, is_peek: bool) -> int:
        if not is_peek:
            return self._positions.get(request.group, queue, from_min=request.from_min)
        offset = self._positions.find(request.group, queue)
        if offset is not None:
            return offset
        return self._positions.first(request.group, queue, from_min=request.from_min)

    async def _read(
        self, request: PopRequest, command: PullCommand, queue: QueueKey, offset: int, count: int
    ) -> GetMessageResult:
        """Reads matching records; jumps to the next existing offset if `offset` has none."""
        limits, left = command.limits, request.count_max - count
        limits = replace(
            limits,
            count_max=min(limits.count_max, left),
            cold_count_max=min(limits.cold_count_max, left),
        )
        result = await self._matching.get_message(queue, offset, NO_END, limits, command.sql92)
        if result.status in _MOVED:
            offset = result.next_offset
            result = await self._matching.get_message(queue, offset, NO_END, limits, command.sql92)
        return result

    def _take(
        self,
        request: PopRequest,
        queue: QueueKey,
        offset: int,
        result: GetMessageResult,
        popped: Popped,
        *,
        is_peek: bool,
    ) -> None:
        """Appends the check point of a read and adds its messages. Raises as `pop` does."""
        block = RecordBlock.parse(bytearray(result.data), result.sizes)
        offsets = block.header["queue_offset"].astype(np.int64).tolist()
        counts: list[int] = []
        if request.is_ordered and not is_peek:
            counts = self._ordered.deliver(
                *(request.group, queue, offsets, popped.pop_ms, popped.invisible_ms),
                request.attempt_id,
            )
        elif not is_peek:
            self._check_point(request, queue, offset, offsets, result, popped)
        if not is_peek:
            self._pulls.pulled(Pulled.of(queue, request.group, result, self._clock.now_ms()))
        popped.queues.append(PoppedQueue(queue, offset, offsets, block, counts))

    def _check_point(
        self,
        request: PopRequest,
        queue: QueueKey,
        offset: int,
        offsets: list[int],
        result: GetMessageResult,
        popped: Popped,
    ) -> None:
        point = popped.check_point(request.group, queue, offset, offsets)
        begin = self._store.positions().log_end
        written = self._log.append(popped.revive_queue, (point, point.deliver_ms))
        popped.end = written.end_offset
        self._positions.move(request.group, queue, result.next_offset, begin, popped.end)
