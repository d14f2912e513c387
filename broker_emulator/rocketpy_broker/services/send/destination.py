"""Where a block of a client is stored: in its queue, or where its messages wait until they are due.

Nearly all blocks stay as they are, which a look into their properties tells that is needed anyway.
Holds no state.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.errors import PermissionDeniedError, RecordIllegalError
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.send.half_message import HALF_QUEUE, half_message, is_half
from rocketpy_broker.services.send.message_types import MessageTypes
from rocketpy_broker.store.append.blocks import tags_and_keys
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import MalformedRecordError, RecordBlock
from rocketpy_proto.record.index_keys import KeyLimits, TagsAndKeys

# Two bytes make a key. A key takes 80 bytes of memory, and a third of a microsecond, meanwhile.
KEYS_PER_MESSAGE_MAX = 1_024
# A block may have so many, and for each message some more.
KEYS_MAX, KEYS_OF_EACH = 65_536, 8


@dataclass(frozen=True, slots=True)
class Destination:
    """A block as it is stored, the queue that it is stored in, and what its properties say.

    `sent` is what they said as it was sent.
    """

    queue: QueueKey
    block: RecordBlock
    found: TagsAndKeys
    sent: TagsAndKeys


class DestinationResolver:
    """Places blocks."""

    def __init__(
        self,
        schedule: DelaySchedule,
        message_types: MessageTypes,
        config: StoreConfig,
        *,
        reject_transaction_message: bool,
    ) -> None:
        self._schedule = schedule
        self._message_types = message_types
        self._config = config
        self._reject_transaction_message = reject_transaction_message

    def placed(self, queue: QueueKey, block: RecordBlock, *, in_batch: bool = False) -> Destination:
        """Returns the block, which was sent to `queue`. Any thread may call it.

        Raises RecordIllegalError, PermissionDeniedError.
        """
        found = self.found(queue, block)
        if not found.may_wait:
            return Destination(queue, block, found, found)
        place, waiting = self._waiting(queue, block, in_batch=in_batch)
        if place == queue:
            return Destination(queue, block, found, found)
        return Destination(place, waiting, tags_and_keys(place, waiting, self._config), found)

    def placed_decided(self, queue: QueueKey, block: RecordBlock) -> Destination:
        """Returns a block of a decided batch, which is not refused any more for what it was checked for.

        Raises TimerRefusedError, and RecordIllegalError where settings have changed since.
        """
        found = tags_and_keys(queue, block, self._config)
        place, waiting = self._schedule.placed(queue, block, is_accepted=True)
        if place == queue:
            return Destination(queue, block, found, found)
        return Destination(place, waiting, tags_and_keys(place, waiting, self._config), found)

    def found(self, queue: QueueKey, block: RecordBlock) -> TagsAndKeys:
        """What the properties say, if the topic is for such messages. Raises RecordIllegalError."""
        limits = KeyLimits(KEYS_PER_MESSAGE_MAX, KEYS_MAX + KEYS_OF_EACH * len(block))
        try:
            found = tags_and_keys(queue, block, self._config, limits)
        except MalformedRecordError as error:
            raise RecordIllegalError(str(error)) from error
        self._message_types.check(queue.topic, block, may_wait=found.may_wait)
        return found

    def _waiting(
        self, queue: QueueKey, block: RecordBlock, *, in_batch: bool
    ) -> tuple[QueueKey, RecordBlock]:
        if not is_half(block, self._config.delay_levels):
            return self._schedule.placed(queue, block)
        if in_batch:
            raise RecordIllegalError(
                "a batch holds a half message; a batch is a transaction itself"
            )
        if self._reject_transaction_message:
            raise PermissionDeniedError("this broker takes no transaction messages")
        half = half_message(queue, block)
        # What could never be committed is refused now: its message has all of these properties.
        self._schedule.placed(queue, half)
        return HALF_QUEUE, half
