"""Recall of a message before its delivery time.

A waiting message has a handle, which names this broker and the message's topic, time and unique
key. A recall appends a cancel record to the timer queue, as RocketMQ does, so its broker obeys it,
too. The answer does not say if the message was still waiting.
Recall is on by default: a client that does not know the unique key cannot recall the message.
RocketMQ's default is off, for clusters in upgrade.
Source: docs/design/broker_behaviour.md sections 1.7 and 8.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import PermissionDeniedError, RecallIllegalError, RecordIllegalError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.time_format import duration_of_ms, time_of_ms
from rocketpy_broker.services.delay.schedule import TIMER_DEL_UNIQKEY, DelaySchedule
from rocketpy_broker.services.delay.timer.records import cancel_key
from rocketpy_broker.services.flush.group_commit import GroupCommit
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.append.blocks import tags_and_keys
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.model.recall_handle import MalformedHandleError, RecallHandle
from rocketpy_proto.record import (
    BlockColumns,
    RecordBlock,
    UnencodableRecordError,
    encode_block,
)
from rocketpy_proto.record.properties import TIMER_DELIVER_MS, UNIQ_KEY

RECALL_BODY = b"0"
RECALL_TAG = "_RECALL_TAG_"


class RecallTimeError(RecallIllegalError):
    """A handle with a delivery time that is past, or too far ahead."""


class RecallService:
    """The service that recalls messages which wait for their delivery time."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        group_commit: GroupCommit,
        schedule: DelaySchedule,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._group_commit = group_commit
        self._schedule = schedule
        self._config = config
        self._clock = clock

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancels the message of the handle and returns its unique key; durable on return.

        Raises PermissionDeniedError, StoreClosedError, StoreBusyError, TopicNotExistError,
        RecallIllegalError, TimerRefusedError, FlushTimeoutError.
        """
        if not self._config.recall_message_enable:
            raise PermissionDeniedError("recall failed, operation is forbidden")
        await self._group_commit.admission.write_over()
        self._store.check_writable()
        self._topics.get(topic)
        handle = self._checked(topic, recall_handle)
        queue, block = self._order(handle)
        found = tags_and_keys(queue, block, self._store.config)
        result = self._store.append(queue, block, AppendHints(found, cause=PutCause.OWN))
        await self._group_commit.wait(result.end_offset)
        return handle.unique_key

    def _checked(self, topic: str, text: str) -> RecallHandle:
        try:
            handle = RecallHandle.decode(text)
        except MalformedHandleError as error:
            raise RecallIllegalError(str(error)) from error
        if handle.topic != topic:
            raise RecallIllegalError(
                f"it is for topic {handle.topic!r:.200}, and the request names {topic!r:.200}; "
                "send the topic of the handle"
            )
        if handle.broker_name != self._config.broker_name:
            raise RecallIllegalError(
                f"it is for broker {handle.broker_name!r:.200}, and this is "
                f"{self._config.broker_name!r}; send it to that broker"
            )
        left_ms = handle.deliver_ms - self._clock.now_ms()
        due, delay_ms_max = time_of_ms(handle.deliver_ms), self._config.timer_delay_ms_max
        if left_ms <= 0:
            raise RecallTimeError(f"its message was due at {due}; it may have been delivered")
        if left_ms >= delay_ms_max:
            raise RecallTimeError(
                f"its message is due at {due}, limit {duration_of_ms(delay_ms_max)} from now"
            )
        return handle

    def _order(self, handle: RecallHandle) -> tuple[QueueKey, RecordBlock]:
        extra = {
            UNIQ_KEY: handle.unique_key,
            TIMER_DELIVER_MS: str(handle.deliver_ms),
            TIMER_DEL_UNIQKEY: cancel_key(handle.topic, handle.unique_key),
        }
        columns = BlockColumns(
            body=pa.array([RECALL_BODY], pa.binary()),
            topic=handle.topic,
            queue_id=0,
            tags=pa.array([RECALL_TAG], pa.string()),
            keys=None,
            properties=None,
            extra={name: pa.array([value], pa.string()) for name, value in extra.items()},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._store.store_host,
        )
        try:
            encoded = encode_block(columns)
            block = RecordBlock.parse(
                bytearray(encoded.data.to_pybytes()), encoded.sizes.astype(np.int32)
            )
            return self._schedule.redirect(QueueKey(handle.topic, 0), block)
        except (UnencodableRecordError, RecordIllegalError) as error:
            raise RecallIllegalError(str(error)) from error
