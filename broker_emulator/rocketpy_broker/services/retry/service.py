"""Send-backs of messages that a consumer group could not consume.

Each message is stored again, delayed in the retry topic or as a dead letter. The broker looks it up
by its physical offset, so the client does not send its body. A successful answer is as durable as
an append. A crash before the answer leaves some of a call's messages stored; a repeated call stores
them twice. It loses none: the consumed offset stays uncommitted until the answer.
State: the next queue of the retry topic.
Source: docs/design/storage.md section 16, docs/design/broker_behaviour.md sections 6.1 and 6.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
import pyarrow.compute as pc

from rocketpy_broker.errors import (
    BrokerError,
    ParameterIllegalError,
    RecordIllegalError,
    SendBackError,
    StoreClosedError,
    StoreError,
    UnconfirmedError,
)
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.retry.message_lookup import Found, MessagesToSendBack, SendBack
from rocketpy_broker.services.send.record_copy import sent_back
from rocketpy_broker.services.send.retry_targets import RetryTargets
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.work_time import WorkTime
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.call_limits import ENTRIES_MAX
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.record import RecordBlock, RecordError, property_column
from rocketpy_proto.record.properties import RETRY_TOPIC

# Bytes of the messages of one call; the next call takes the rest.
CALL_BYTES_MAX = 16 << 20
# Blocks above this size are copied, patched and written in separate scheduler slots.
LONG_BYTES = 64 << 10
# The delay level of a first failure with level 0 in the request: RocketMQ's 10 seconds.
FIRST_LEVEL = 3
DEAD_LETTER_LEVEL = 0


class SentBackTo(Enum):
    """The outcome of a message."""

    RETRY = "retry"
    DEAD_LETTER = "dead letter"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class SentBackMessages:
    """The number of messages by topic that a group has sent back; `is_dead`: as dead letters."""

    group: str
    topics: Mapping[str, int]
    is_dead: bool


Outcome: TypeAlias = SentBackTo | BrokerError


@dataclass(slots=True)
class _Call:
    """A running call; `outcomes` has one entry for each processed message."""

    group: SubscriptionGroupConfig
    retry_topic: str
    reconsume_times_max: int
    outcomes: list[Outcome]
    # The end of the last stored message in the log.
    end: int = 0


class SendBackService:
    """Service that stores messages that are sent back."""

    def __init__(
        self,
        store: MessageStore,
        targets: RetryTargets,
        sends: SendService,
        schedule: DelaySchedule,
        group_commit: GroupCommit,
        clock: Clock,
    ) -> None:
        self._store = store
        self._lookup = MessagesToSendBack(store)
        self._targets = targets
        self._admission = sends.admission
        self._preconditions = sends.preconditions
        self._schedule = schedule
        self._group_commit = group_commit
        self._clock = clock
        self._turn = 0
        # Called after each stored block.
        self.sent_back = Listeners[[SentBackMessages]]()

    async def send_back(
        self,
        group: str,
        messages: Sequence[SendBack],
        reconsume_times_max: int | None = None,
        *,
        unit_mode: bool = False,
    ) -> list[Outcome]:
        """Returns the outcomes of the first messages, one or more; durable on return.

        With `unit_mode` a new retry topic has RocketMQ's flag of that mode.
        Raises ParameterIllegalError, StoreClosedError, StoreBusyError, ClientsFullError,
        SubscriptionGroupNotExistError, SendBackError, PermissionDeniedError; then nothing was
        stored.
        """
        _check(messages, reconsume_times_max)
        await self._admission.store_ready()
        self._store.check_writable()
        config = await self._targets.group(group)
        self._preconditions.check_permission()
        if config.retry_queue_nums <= 0:
            return [SentBackTo.DROPPED] * len(messages)
        topic = await self._targets.retry_topic(config, unit_mode=unit_mode)
        if reconsume_times_max is None:
            reconsume_times_max = config.retry_max_times
        call = _Call(config, topic, reconsume_times_max, [])
        await self._run(call, messages)
        await self._wait_for_disk(call)
        return call.outcomes

    async def _run(self, call: _Call, messages: Sequence[SendBack]) -> None:
        time, bytes_left = WorkTime(self._clock), CALL_BYTES_MAX
        while len(call.outcomes) < len(messages):
            found = self._lookup.from_(messages, len(call.outcomes))
            call.outcomes += await self._store_found(call, found)
            bytes_left -= found.bytes
            if time.is_over or bytes_left <= 0:
                return
            await take_slot()
            await self._admission.store_ready()

    async def _store_found(self, call: _Call, found: Found) -> list[Outcome]:
        outcomes: list[Outcome | None] = list(found.faults)
        if found.block is None:
            return [each for each in outcomes if each is not None]
        places = np.flatnonzero([each is None for each in outcomes])
        levels = self._levels(call, found)
        for level in np.unique(levels).tolist():
            await take_slot()
            wanted = levels == level
            stored = await self._store_level(call, found.block.filter(wanted), level)
            for place, outcome in zip(places[wanted].tolist(), stored, strict=True):
                outcomes[place] = outcome
        return [each for each in outcomes if each is not None]

    @staticmethod
    def _levels(call: _Call, found: Found) -> np.ndarray:
        """Returns the level of each found message, or DEAD_LETTER_LEVEL."""
        assert found.block is not None
        times = found.block.header["reconsume_times"].astype(np.int64)
        given = found.delay_levels
        by_attempts = np.maximum(FIRST_LEVEL + times, 1)
        is_dead = (given < 0) | (times >= call.reconsume_times_max)
        return np.where(is_dead, DEAD_LETTER_LEVEL, np.where(given == 0, by_attempts, given))

    async def _store_level(self, call: _Call, block: RecordBlock, level: int) -> list[Outcome]:
        """Returns the outcome of each message of one level."""
        if level != DEAD_LETTER_LEVEL:
            self._turn += 1
            queue = QueueKey(call.retry_topic, self._turn % call.group.retry_queues)
        else:
            try:
                queue = await self._targets.dead_letters(call.group)
            except SendBackError as error:
                return [error] * len(block)
        return await self._stored(call, queue, block, level)

    async def _stored(
        self, call: _Call, queue: QueueKey, block: RecordBlock, level: int
    ) -> list[Outcome]:
        """Stores a block; if a record is illegal, stores the records one by one."""
        is_dead = level == DEAD_LETTER_LEVEL
        try:
            place, block_to_store = await self._to_store(queue, block, level)
            # Other tasks ran: the topic may be deleted, with the messages that wait for it.
            self._targets.check(queue.topic)
            self._store.deletions.check(queue.topic)
            result = self._store.append(
                place, block_to_store, AppendHints(cause=PutCause.SENT_BACK)
            )
        except (RecordError, RecordIllegalError) as error:
            if len(block) > 1:
                outcomes: list[Outcome] = []
                for row in range(len(block)):
                    await take_slot()
                    outcomes += await self._stored(call, queue, _row(block, row), level)
                return outcomes
            reason = "the message cannot be stored when it is sent back"
            return [RecordIllegalError(f"{reason}: {error}")]
        except StoreError as error:
            return [_failed_put(error)] * len(block)
        except SendBackError as error:
            return [error] * len(block)
        call.end = max(call.end, result.end_offset)
        counts = pc.value_counts(property_column(block_to_store, RETRY_TOPIC)).to_pylist()
        topics = {each["values"]: each["counts"] for each in counts}
        self.sent_back(SentBackMessages(call.group.group, topics, is_dead))
        return [SentBackTo.DEAD_LETTER if is_dead else SentBackTo.RETRY] * len(block)

    async def _to_store(
        self, queue: QueueKey, block: RecordBlock, level: int
    ) -> tuple[QueueKey, RecordBlock]:
        """Returns the first queue of the block and its form; takes scheduler slots between copies.

        The caller may write it at once. Raises RecordError, RecordIllegalError.
        """
        changed = sent_back(block, queue.topic, level)
        if level != DEAD_LETTER_LEVEL:
            await _between_copies(block)
            queue, changed = self._schedule.redirect(queue, changed)
        await _between_copies(block)
        await self._admission.write_over()
        return queue, changed

    async def _wait_for_disk(self, call: _Call) -> None:
        """Waits for the flush. A message that is not on disk has failed, even if stored."""
        try:
            await self._group_commit.acknowledged(call.end)
        except (UnconfirmedError, StoreClosedError) as error:
            failed = _failed_put(error)
            call.outcomes = [
                failed if isinstance(each, SentBackTo) else each for each in call.outcomes
            ]


def _check(messages: Sequence[SendBack], reconsume_times_max: int | None) -> None:
    if not 1 <= len(messages) <= ENTRIES_MAX:
        accepted = f"1 to {ENTRIES_MAX}"
        raise ParameterIllegalError("number of messages", len(messages), accepted)
    if reconsume_times_max is not None and reconsume_times_max < 0:
        raise ParameterIllegalError("max_reconsume_times", reconsume_times_max, "0 or more")


async def _between_copies(block: RecordBlock) -> None:
    """Takes a scheduler slot if each copy of the block takes milliseconds."""
    if len(block.data) > LONG_BYTES:
        await take_slot()


def _failed_put(error: StoreError) -> BrokerError:
    """Returns RocketMQ's answer for a failed put: the store's status by name.

    Returns other errors unchanged, such as that of a busy store.
    """
    if isinstance(error, UnconfirmedError | StoreClosedError):
        return SendBackError(f"{error.code.name}: {error.remark}")
    return error


def _row(block: RecordBlock, row: int) -> RecordBlock:
    return block.filter(np.arange(len(block)) == row)
