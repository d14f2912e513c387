"""Deliveries of popped messages by handle: receives, acknowledgements, changes, dead letters.

A receive is a pop of this broker's queues, in order if the group consumes in order. It compares
texts of tags, where the pop compares hashes; messages with other tags are acknowledged. A message
after its last attempt becomes a dead letter instead of a delivery. A crash after the copy and
before its acknowledgement repeats both. An acknowledgement is idempotent. An expired or replaced
handle changes nothing, with one exception. A message that blocks its queue in an ordered group may
become a dead letter: clients repeat that call until it succeeds.
Source: ReceiveMessageActivity, PopMessageResultFilterImpl, AckMessageActivity,
ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity,
docs/design/grpc_v2_semantics.md section 9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import BrokerError, StoreError
from rocketpy_broker.runtime.clock import Clock, resolve
from rocketpy_broker.runtime.log_throttle import LogThrottle
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.deliveries.handles import (
    ForeignHandleError,
    HandleInvalidError,
    Handles,
    as_invalid,
)
from rocketpy_broker.services.deliveries.left_work import LeftWork
from rocketpy_broker.services.deliveries.renewals import RenewalService, Renewed
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.receipts.ack_service import Acknowledged, AckService
from rocketpy_broker.services.receipts.handle import Receipt
from rocketpy_broker.services.receipts.pop_service import PopService
from rocketpy_broker.services.receipts.popped import (
    ANY_QUEUE,
    Popped,
    PoppedQueue,
    PopRequest,
)
from rocketpy_broker.services.retry.message_lookup import SendBack
from rocketpy_broker.services.retry.service import SendBackService
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import RecordBlock

logger = logging.getLogger(__name__)
# The invisible time of deliveries that a client could not take.
RELEASED_MS = 1_000
DEAD_LETTER = -1
# Handles of one call per scheduler slot, at about 20 microseconds each.
CLAIMS_A_SLOT = 100


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for a client: a record of a block, its handle, and its attempt from 1 on."""

    group: str
    topic: str
    queue: QueueKey
    block: RecordBlock
    row: int
    receipt: Receipt
    handle: str
    attempt: int

    @property
    def byte_count(self) -> int:
        """The size of the record in bytes."""
        return int(self.block.sizes[self.row])


class DeliveryService:
    """The service of deliveries by handle."""

    def __init__(
        self,
        store: MessageStore,
        groups: SubscriptionGroupManager,
        pops: PopService,
        acks: AckService,
        retry: SendBackService,
        renewals: RenewalService,
        clock: Clock,
        call_clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._store = store
        self._groups = groups
        self._pops = pops
        self._acks = acks
        self._retry = retry
        self.renewals = renewals
        self._clock = clock
        self._call_clock = call_clock
        self.left_work = LeftWork(tasks, clock)
        self._handles = Handles(store)
        # Running forwards to the dead letters, by handle.
        self._forwards: dict[str, asyncio.Future[None]] = {}
        self._log_throttle = LogThrottle(clock)

    async def receive(
        self, request: PopRequest, client_id: str, *, is_renewed: bool
    ) -> list[Delivery]:
        """Returns messages; none after `wait_ms`. With `is_renewed` they stay invisible.

        Only ordered groups receive from the named queue. Raises as PopService.pop does, and the
        errors of SendBackService.send_back.
        """
        self.renewals.seen(client_id)
        config = self._groups.find(request.group)
        is_ordered = config is not None and config.consume_message_orderly
        queue_id = request.queue_id if is_ordered else ANY_QUEUE
        request = replace(request, queue_id=queue_id, is_ordered=is_ordered, from_min=False)
        deadline_ms = self._call_clock.monotonic_ms() + request.wait_ms
        while True:
            popped = await self._pops.pop(request)
            deliveries = await self._deliveries(request, popped)
            left_ms = int(deadline_ms - self._call_clock.monotonic_ms())
            if deliveries or not popped.queues or left_ms <= 0:
                break
            request = replace(request, wait_ms=left_ms)
        if is_renewed:
            self._renew(deliveries, client_id)
        return deliveries

    def _renew(self, deliveries: Sequence[Delivery], client_id: str) -> None:
        now_ms = self._clock.monotonic_ms()
        for each in deliveries:
            place = each.queue, each.receipt, each.attempt
            renewed = Renewed(client_id, each.group, *place, now_ms, now_ms)
            self.renewals.add(each.handle, renewed)

    async def _deliveries(self, request: PopRequest, popped: Popped) -> list[Delivery]:
        """Returns the messages for the client, after `_end` has acknowledged the unwanted ones.

        That continues when the caller is cancelled. Beyond the limits of `left_work` it is left
        out, and the unwanted messages come again.
        """
        found: list[Delivery] = []
        running: list[asyncio.Task[None]] = []
        for part in popped.queues:
            is_wanted, attempts = request.filter_text.has_tag(part.block), _attempts(part)
            is_dead = is_wanted & (attempts > self._attempts_max(request.group))
            receipts = popped.receipts(part)
            rows = np.flatnonzero(is_dead | ~is_wanted).tolist()
            if rows:
                places = part.block.header["physical_offset"][is_dead].tolist()
                offsets = [part.offsets[row] for row in rows]
                end = self._end(request.group, part.queue, offsets, receipts[rows[0]], places)
                task = self.left_work.begin(len(rows), end)
                running += [] if task is None else [task]
            for row in np.flatnonzero(is_wanted & ~is_dead).tolist():
                handle = self._handles.text(request.group, request.topic, receipts[row])
                place = request.group, request.topic, part.queue, part.block, row
                found.append(Delivery(*place, receipts[row], handle, int(attempts[row])))
        try:
            for each in running:
                await asyncio.shield(each)
        except asyncio.CancelledError:
            self.release(request.group, request.topic, [each.handle for each in found])
            raise
        return found

    async def _end(
        self,
        group: str,
        queue: QueueKey,
        offsets: Sequence[int],
        receipt: Receipt,
        dead_places: Sequence[int],
    ) -> None:
        """Acknowledges the messages at `offsets`, after it copied some to the dead letters.

        `dead_places` are the log offsets of the latter. After an error all of them come again at
        the end of their invisible time.
        """
        try:
            await self._to_dead_letters(group, dead_places)
            await self._acks.ack(group, queue, offsets, receipt)
        except BrokerError as error:
            if self._log_throttle.may_log():
                logger.warning(
                    "unwanted messages come again at the end of their invisible time, since they "
                    "could not be acknowledged or become dead letters: %s",
                    error,
                )

    def _attempts_max(self, group: str) -> int:
        config = self._groups.find(group)
        return np.iinfo(np.int32).max if config is None else config.retry_max_times + 1

    async def _to_dead_letters(self, group: str, places: Sequence[int]) -> None:
        messages = [SendBack(commit_log_offset=each, delay_level=DEAD_LETTER) for each in places]
        while messages:
            outcomes = await self._retry.send_back(group, messages)
            for outcome in outcomes:
                if isinstance(outcome, BrokerError):
                    raise outcome
            messages = messages[len(outcomes) :]

    # --- Answers of clients ---

    async def ack(
        self, group: str, topic: str, handles: Sequence[str], client_id: str
    ) -> list[BrokerError | None]:
        """Acknowledges messages; returns the error of each handle, or None.

        Raises FlushTimeoutError, StoreClosedError for all.
        """
        self.renewals.seen(client_id)
        errors: dict[str, BrokerError | None] = {}
        claims: list[_Claim] = []
        try:
            for number, handle in enumerate(dict.fromkeys(handles), 1):
                if number % CLAIMS_A_SLOT == 0:
                    await take_slot()
                errors[handle] = None
                try:
                    claim = await self._claim(group, topic, handle)
                except BrokerError as error:
                    errors[handle] = error
                else:
                    claims += [] if claim is None else [claim]
            parts = _by_check_point(claims)
            results = await self._acks.ack_all([_acknowledged(group, part) for part in parts])
        except (StoreError, asyncio.CancelledError):
            # The client may repeat the call with the same handles.
            self._unclaim(claims)
            raise
        for part, result in zip(parts, results, strict=True):
            for claim in part:
                errors[claim.handle] = as_invalid(claim.handle, result)
                if result is None:
                    self._handles.acknowledged.add(claim.handle)
            if isinstance(result, StoreError):
                self._unclaim(part)
        return [errors[handle] for handle in handles]

    async def change(self, group: str, topic: str, handle: str, invisible_ms: int) -> str:
        """Makes a message visible `invisible_ms` from now; returns its new handle.

        Raises HandleInvalidError, and as AckService.change_invisible_time does.
        """
        claim = await self._claim(group, topic, handle)
        if claim is None:
            raise HandleInvalidError(handle, "was acknowledged")
        # A repeated call has no effect from now on.
        self._handles.replaced.add(handle)
        try:
            changed = await self._acks.change_invisible_time(
                group, claim.queue, claim.offset, claim.receipt, invisible_ms
            )
        except BrokerError as error:
            self._handles.replaced.discard(handle)
            if isinstance(error, StoreError):
                self._unclaim([claim])
            raise as_invalid(handle, error) or error from error
        new_handle = self._handles.text(group, topic, changed)
        if new_handle == handle:
            self._handles.replaced.discard(handle)
        return new_handle

    async def forward_to_dead_letters(self, group: str, topic: str, handle: str) -> None:
        """Makes a dead letter of a message and acknowledges it.

        Does nothing for a message that is acknowledged, changed, delivered again, gone, or of
        another store. Clients repeat the call until it succeeds. Raises HandleInvalidError, and as
        SendBackService.send_back does.
        """
        try:
            queue, receipt = self._handles.receipt(group, topic, handle)
        except ForeignHandleError as error:
            if self._log_throttle.may_log():
                logger.info("a forward to the dead letters has no effect: %s", error)
            return
        await self._await_forward(handle)
        if handle in self._handles.acknowledged or handle in self._handles.replaced:
            return
        # A repeated call has no effect from now on.
        self._handles.acknowledged.add(handle)
        forward = self._forwards[handle] = asyncio.get_running_loop().create_future()
        try:
            await self._forward(group, queue, receipt, handle)
        finally:
            del self._forwards[handle]
            resolve(forward)

    async def _await_forward(self, handle: str) -> None:
        """Waits for the end of a running forward, which may fail."""
        while (forward := self._forwards.get(handle)) is not None:
            await asyncio.wait([forward])

    async def _forward(self, group: str, queue: QueueKey, receipt: Receipt, handle: str) -> None:
        renewed = await self.renewals.take(handle)
        receipt = receipt if renewed is None else renewed.receipt
        try:
            place = self._place(queue, receipt.offset)
            if place is None or not self._acks.is_open(group, queue, receipt):
                return
            await self._to_dead_letters(group, [place])
            await self._acks.ack(group, queue, [receipt.offset], receipt)
        except (BrokerError, asyncio.CancelledError) as error:
            if renewed is not None:
                self.renewals.put_back(handle, renewed)
            self._handles.acknowledged.discard(handle)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise as_invalid(handle, error) or error from error

    def release(self, group: str, topic: str, handles: Sequence[str]) -> None:
        """Starts a task that makes deliveries visible soon, since the client did not get them."""
        self.left_work.begin(len(handles), self._release(group, topic, handles))

    def release_popped(self, request: PopRequest, popped: Popped) -> None:
        """Starts a task that makes a pop's messages visible soon, since no answer has them."""
        receipts = [each for part in popped.queues for each in popped.receipts(part)]
        handles = [self._handles.text(request.group, request.topic, each) for each in receipts]
        self.release(request.group, request.topic, handles)

    async def _release(self, group: str, topic: str, handles: Sequence[str]) -> None:
        for handle in handles:
            await take_slot()
            try:
                await self.change(group, topic, handle, RELEASED_MS)
            except BrokerError as error:
                if self._log_throttle.may_log():
                    logger.info(
                        "a message stays invisible until the end of its invisible time: %s", error
                    )

    def _place(self, queue: QueueKey, offset: int) -> int | None:
        """Returns the log offset of a message; None if it is gone."""
        units = self._store.queue_lookup.unit_range(queue, offset, offset + 1)
        is_found = units is not None and units.begin == offset and len(units.sizes) > 0
        return int(units.physical_offsets[0]) if units is not None and is_found else None

    async def _claim(self, group: str, topic: str, handle: str) -> _Claim | None:
        """Returns the delivery of a handle and ends its renewal; None if it was acknowledged.

        Raises HandleInvalidError.
        """
        queue, receipt = self._handles.receipt(group, topic, handle)
        await self._await_forward(handle)
        if handle in self._handles.acknowledged:
            return None
        if handle in self._handles.replaced:
            raise HandleInvalidError(handle, "was replaced by a change")
        renewed = await self.renewals.take(handle)
        receipt = receipt if renewed is None else renewed.receipt
        if receipt.visible_ms <= self._clock.now_ms():
            raise HandleInvalidError(handle, "has expired")
        return _Claim(handle, queue, receipt, renewed)

    def _unclaim(self, claims: Sequence[_Claim]) -> None:
        for each in claims:
            if each.renewed is not None:
                self.renewals.put_back(each.handle, each.renewed)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A handle that a call uses."""

    handle: str
    queue: QueueKey
    receipt: Receipt
    renewed: Renewed | None

    @property
    def offset(self) -> int:
        """The queue offset of the message."""
        return self.receipt.offset


def _by_check_point(claims: Sequence[_Claim]) -> list[list[_Claim]]:
    """Returns the claims by check point.

    The messages of a check point are in one log segment, so cleaning removes them together. An
    ordered pop has no check point: each of its messages may move the group's offset.
    """
    parts: dict[tuple[object, ...], list[_Claim]] = {}
    for each in claims:
        queue, receipt = each.queue, each.receipt
        own = each.handle if receipt.is_ordered else ""
        point = receipt.start_offset, receipt.pop_ms, receipt.visible_ms, receipt.revive_queue_id
        parts.setdefault((queue, point, own), []).append(each)
    return list(parts.values())


def _acknowledged(group: str, part: Sequence[_Claim]) -> Acknowledged:
    return Acknowledged(group, part[0].queue, [each.offset for each in part], part[0].receipt)


def _attempts(part: PoppedQueue) -> NDArray[np.int64]:
    """Returns the number of this delivery of each message, from 1 on."""
    counts = part.counts or part.block.header["reconsume_times"]
    return np.maximum(np.asarray(counts, np.int64), 0) + 1
