"""Checks of open transactions in rounds over their half messages.

A round covers every open half message that is old enough. Before the check, the half message is
copied to the queue's end with its count of checks. Its older copy ends. RocketMQ does the same.
So no old half message holds up the progress, and the count survives a crash. If a crash leaves both
copies open, the newer one counts. A message that was checked too often goes to
TRANS_CHECK_MAX_TIME_TOPIC. The state is in the table.
Source: docs/design/storage.md section 14.5, docs/design/broker_behaviour.md sections 7.5 and 7.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketpy_broker.config import TransactionTimes
from rocketpy_broker.errors import RecordIllegalError, StoreError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.check_report import CheckReason, TransactionLines
from rocketpy_broker.services.transactions.messages import (
    CHECK_MAX_TIME_QUEUE,
    HalfMessage,
    Operation,
    TransactionMessages,
)
from rocketpy_broker.services.transactions.progress import TransactionProgress
from rocketpy_broker.services.transactions.table import TransactionTable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import AppendResult
from rocketpy_proto.model import CHECK_MAX_TIME_TOPIC
from rocketpy_proto.model.configs import TopicConfig
from rocketpy_proto.record import (
    RecordError,
    encode_offset_message_id,
    properties_strings,
    rewritten,
)
from rocketpy_proto.rocketpy.v1 import groups_pb2

logger = logging.getLogger(__name__)
CHECK_MAX_TIME_CONFIG = TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1)
# Offsets skipped in one scheduler slot.
SLOT_OFFSETS = 1_000
# Limit of half messages after one that is too young for a check.
WAITING_HALVES_MAX = 20_000


class CheckService:
    """A task that checks open half messages. `ask` returns True if a producer was available."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        messages: TransactionMessages,
        table: TransactionTable,
        progress: TransactionProgress,
        group_commit: GroupCommit,
        clock: Clock,
        times: TransactionTimes,
        reserved_ms: int,
        ask: Callable[[groups_pb2.CheckTransaction], bool],
    ) -> None:
        self._store = store
        self._topics = topics
        self._messages = messages
        self._table = table
        self._progress = progress
        self._group_commit = group_commit
        self._clock = clock
        self.times = times
        self.reserved_ms = reserved_ms
        self._ask = ask

    def load(self) -> None:
        """Restores the topic of discarded messages if a crash removed it but not its messages."""
        if self._store.range_of(CHECK_MAX_TIME_QUEUE).max_offset > 0:
            self._topics.note_own(CHECK_MAX_TIME_CONFIG)

    async def run(self) -> None:
        """Runs a round after each interval until stopped."""
        while True:
            await sleep(self._clock, self.times.check_interval_ms)
            try:
                await self.check_all()
            except StoreError as error:
                logger.warning("transactions cannot be checked now: %s", error)
            self._group_commit.flush_soon()

    async def check_all(self) -> None:
        """Runs one round over the present half messages. Raises StoreError."""
        await self._group_commit.admission.write_over()
        self._progress.write_ops()
        while self._table.advance():
            await take_slot()
        lines = TransactionLines()
        try:
            await self._check_round(lines)
        finally:
            lines.log()

    async def _check_round(self, lines: TransactionLines) -> None:
        end = self._store.range_of(HALF_QUEUE).max_offset
        offset = self._table.next_half
        passed = 0
        while offset < end:
            if not self._table.is_over(offset):
                await self._group_commit.admission.write_over()
                self._check_or_report(offset, lines)
                passed = SLOT_OFFSETS
            offset += 1
            passed += 1
            if passed >= SLOT_OFFSETS:
                passed = 0
                await take_slot()
                offset = max(offset, self._table.next_half)

    def _check_or_report(self, offset: int, lines: TransactionLines) -> None:
        """Checks one half message; an illegal one does not stop the round. Raises StoreError."""
        if self._table.is_over(offset):
            # It ended while this round waited: a copy would be committed again.
            return
        try:
            self._check_at(offset, lines)
        except (RecordIllegalError, RecordError) as error:
            lines.note(CheckReason.NOT_ASKED, offset, f"{error!s:.200}")

    def _check_at(self, offset: int, lines: TransactionLines) -> None:
        half = self._messages.half(offset)
        if half is None:
            lines.note(CheckReason.LOST, offset)
            self._end(offset, Operation.DISCARDED)
            return
        if self._table.newest(half.first_offset, offset) > offset:
            self._end(offset, Operation.COPIED)
            return
        age_ms = self._clock.now_ms() - half.record.born_timestamp_ms
        if self._messages.is_deleted(half):
            # A copy after the deletion would belong to a recreated topic.
            self._give_up(half)
            lines.note(CheckReason.DELETED, half)
        elif half.check_times >= self.times.check_max or age_ms > self.reserved_ms:
            self._give_up(half)
            lines.note(CheckReason.UNANSWERED, half, f"after {half.check_times} checks")
        elif not 0 <= age_ms <= half.immunity_ms(self.times.timeout_ms):
            if not self._copy_and_ask(half):
                lines.note(CheckReason.NO_PRODUCER, half)
        elif self._store.range_of(HALF_QUEUE).max_offset - offset > WAITING_HALVES_MAX:
            # While it is open, the outcomes of all later half messages stay in memory.
            copy = self._messages.append_copy(half, is_counted=False)
            self._table.copied(half.first_offset, copy.queue_offset)
            self._end(offset, Operation.COPIED)

    def _give_up(self, half: HalfMessage) -> None:
        self._topics.note_own(CHECK_MAX_TIME_CONFIG)
        begin = self._store.positions().log_end
        self._messages.append_discarded(half)
        self._table.finish(half.first_offset, Operation.DISCARDED)
        self._progress.decided(begin, half.record.queue_offset, Operation.DISCARDED)
        self._progress.write_ops()

    def _end(self, offset: int, operation: Operation) -> None:
        self._progress.over(offset, operation)
        self._progress.write_ops()

    def _copy_and_ask(self, half: HalfMessage) -> bool:
        """Copies the half message and asks its group; True if a producer was available."""
        offset = half.record.queue_offset
        copy = self._messages.append_copy(half)
        self._table.copied(half.first_offset, copy.queue_offset)
        self._end(offset, Operation.COPIED)
        return self._ask(_check(half, copy))


def _check(half: HalfMessage, copy: AppendResult) -> groups_pb2.CheckTransaction:
    """Returns the check of a half message; its `record` has the real topic and queue."""
    queue = half.real_queue
    block = rewritten(
        half.block, queue.topic, properties_strings(half.block), {"queue_id": queue.queue_id}
    )
    return groups_pb2.CheckTransaction(
        producer_group=half.producer_group,
        transaction_id=half.transaction_id,
        offset_msg_id=encode_offset_message_id(half.record.store_host, copy.physical_offset),
        commit_log_offset=copy.physical_offset,
        queue_offset=copy.queue_offset,
        record=block.data.tobytes(),
    )
