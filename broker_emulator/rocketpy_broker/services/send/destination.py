"""The destination of a client's block.

The destination is the block's own queue, or a queue of delayed or half messages. Nearly all blocks
go to their own queue unchanged. The scan of the properties that decides this is needed anyway.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import PermissionDeniedError, RecordIllegalError
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.send.half_message import HALF_QUEUE, half_message, is_half
from rocketpy_broker.services.send.message_types import check_message_type
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.append.blocks import tags_and_keys
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import MalformedRecordError, RecordBlock
from rocketpy_proto.record.index_keys import KeyLimits, TagsAndKeys

# A key needs only two bytes of a record. It takes 80 bytes of memory and a third of a microsecond.
KEYS_PER_MESSAGE_MAX = 1_024
# A block may have KEYS_MAX keys, and KEYS_OF_EACH more for each message.
KEYS_MAX, KEYS_OF_EACH = 65_536, 8


@dataclass(frozen=True, slots=True)
class Destination:
    """A block as it is stored, with its queue and the tags and keys of its properties.

    `sent` has the tags and keys of the block as it was sent.
    """

    queue: QueueKey
    block: RecordBlock
    found: TagsAndKeys
    sent: TagsAndKeys

    def delayed(self, sent_to: QueueKey) -> RecordBlock | None:
        """Returns the block if it waits in another queue than the one it was sent to."""
        return None if self.queue == sent_to else self.block


class DestinationResolver:
    """The resolver of destinations for one broker's blocks."""

    def __init__(
        self,
        schedule: DelaySchedule,
        topics: TopicConfigManager,
        config: StoreConfig,
        settings: BrokerConfig,
    ) -> None:
        self._schedule = schedule
        self._topics = topics
        self._config = config
        self._is_checking_types = settings.enable_topic_message_type_check
        self.configure(settings)

    def configure(self, settings: BrokerConfig) -> None:
        """Takes in a changed configuration."""
        self._reject_transaction_message = settings.reject_transaction_message

    def resolve(
        self, queue: QueueKey, block: RecordBlock, *, in_batch: bool = False
    ) -> Destination:
        """Returns the destination of a block sent to `queue`, after a check of its message types.

        Any thread may call it. Raises RecordIllegalError, PermissionDeniedError.
        """
        limits = KeyLimits(KEYS_PER_MESSAGE_MAX, KEYS_MAX + KEYS_OF_EACH * len(block))
        try:
            found = tags_and_keys(queue, block, self._config, limits)
        except MalformedRecordError as error:
            raise RecordIllegalError(str(error)) from error
        topic = self._topics.find(queue.topic)
        if topic is not None and self._is_checking_types:
            check_message_type(topic, block, may_wait=found.may_wait)
        if not found.may_wait:
            return Destination(queue, block, found, found)
        place, waiting = self._waiting(queue, block, in_batch=in_batch)
        if place == queue:
            return Destination(queue, block, found, found)
        return Destination(place, waiting, tags_and_keys(place, waiting, self._config), found)

    def resolve_decided(self, queue: QueueKey, block: RecordBlock) -> Destination:
        """Returns the destination of a decided batch's block, without the checks it has passed.

        Raises TimerRefusedError, and RecordIllegalError where settings have changed since.
        """
        found = tags_and_keys(queue, block, self._config)
        place, waiting = self._schedule.redirect(queue, block, is_accepted=True)
        if place == queue:
            return Destination(queue, block, found, found)
        return Destination(place, waiting, tags_and_keys(place, waiting, self._config), found)

    def _waiting(
        self, queue: QueueKey, block: RecordBlock, *, in_batch: bool
    ) -> tuple[QueueKey, RecordBlock]:
        if not is_half(block, self._config.delay_levels):
            return self._schedule.redirect(queue, block)
        if in_batch:
            raise RecordIllegalError(
                "a batch holds a half message; a batch is a transaction itself"
            )
        if self._reject_transaction_message:
            raise PermissionDeniedError(
                "this broker takes no transaction messages: rejectTransactionMessage is true"
            )
        half = half_message(queue, block)
        # Refuses a message that could never be committed: it will have the same properties.
        self._schedule.redirect(queue, half)
        return HALF_QUEUE, half
