"""Special rules of sends to `%RETRY%group`.

A client sends a message to the retry topic itself after a failed send-back. The record has the
number of its deliveries. Its property MAX_RECONSUME_TIMES, which is not stored, replaces the
group's maximum; in RocketMQ both are fields of the request. A block above the maximum is stored
with the dead letters. So is every block while a client holds a queue lock of the group. The first
send creates the retry topic. Source: docs/design/broker_behaviour.md section 1.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.services.delay.schedule import number_column
from rocketpy_broker.services.flush.admission import Admission
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.services.send.record_copy import MAX_RECONSUME_TIMES, diverted
from rocketpy_broker.services.send.retry_targets import RetryTargets
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import RETRY_PREFIX
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from rocketpy_proto.record import (
    RecordBlock,
    RecordError,
    properties_strings,
    rewritten,
    without_properties,
)

# Limit of messages in a block for a retry topic; their check takes about a millisecond.
MESSAGES_MAX = 1_000
# The highest MAX_RECONSUME_TIMES, and its digits.
TIMES_DIGITS_MAX = 9
RECONSUME_TIMES_MAX = 10**TIMES_DIGITS_MAX - 1


class RetrySends:
    """The rules of sends to retry topics."""

    def __init__(self, targets: RetryTargets, locks: QueueLocks) -> None:
        self.targets = targets
        self._locks = locks

    async def group(self, topic: str, count: int) -> SubscriptionGroupConfig:
        """Returns the group of a block of `count` messages; creates group and topic if needed.

        Raises RecordIllegalError, SubscriptionGroupNotExistError, ParameterIllegalError,
        ClientsFullError, SendBackError.
        """
        _check_count(topic, count)
        group = await self.targets.group(topic.removeprefix(RETRY_PREFIX))
        await self.targets.sent_to(group)
        return group

    async def destination(
        self,
        group: SubscriptionGroupConfig,
        queue: QueueKey,
        block: RecordBlock,
        admission: Admission,
    ) -> tuple[QueueKey, RecordBlock]:
        """Returns the block as it is stored, with its queue or the group's dead-letter queue.

        No other task runs between the last wait and the return. Raises RecordIllegalError,
        SendBackError.
        """
        is_dead = _is_beyond(block, group.retry_max_times)
        if self._locks.is_locked(group.group):
            is_dead[:] = True
        if is_dead.any() and not is_dead.all():
            raise RecordIllegalError(
                f"a block for {queue.topic!r} holds messages below and above their maximum of "
                "redeliveries; send them in separate blocks"
            )
        try:
            block = _without_maximum(block)
            if is_dead.any():
                queue = await self.targets.dead_letters(group)
                await admission.write_over()
                self.targets.check(queue.topic)
                block = diverted(block, queue.topic)
        except RecordError as error:
            raise RecordIllegalError(str(error)) from error
        return queue, block


def _check_count(topic: str, count: int) -> None:
    """Raises RecordIllegalError for more than `MESSAGES_MAX` messages."""
    if count > MESSAGES_MAX:
        raise RecordIllegalError(
            f"a block for {topic!r} holds {count} messages, limit {MESSAGES_MAX}. Send smaller "
            "blocks"
        )


def _is_beyond(block: RecordBlock, retry_max_times: int) -> NDArray[np.bool_]:
    """Returns a mask of the records above their maximum. Raises RecordIllegalError."""
    given = number_column(block, MAX_RECONSUME_TIMES, TIMES_DIGITS_MAX).fill_null(retry_max_times)
    beyond: NDArray[np.bool_] = block.header["reconsume_times"] > given.to_numpy()
    return beyond


def _without_maximum(block: RecordBlock) -> RecordBlock:
    strings = properties_strings(block)
    kept = without_properties(strings, [MAX_RECONSUME_TIMES])
    if kept.equals(strings):
        return block
    topic = block.single_topic()
    assert topic is not None
    return rewritten(block, topic, kept)
