"""Configuration of a consumer group: an entry of `config/subscriptionGroup.json`.

Source: SubscriptionGroupConfig, docs/design/storage.md section 11.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketpy_broker.services.config_files.json_fields import (
    JsonFields,
    as_bool,
    as_int,
    as_long,
    as_object,
    as_texts,
)
from rocketpy_broker.services.topics.config import QUEUE_NUMS_MAX

_FIELDS = JsonFields(
    ("consumeEnable", "consume_enable", as_bool),
    ("consumeFromMinEnable", "consume_from_min_enable", as_bool),
    ("consumeBroadcastEnable", "consume_broadcast_enable", as_bool),
    ("consumeMessageOrderly", "consume_message_orderly", as_bool),
    ("consumeTimeoutMinute", "consume_timeout_minute", as_int),
    ("retryQueueNums", "retry_queue_nums", as_int),
    ("retryMaxTimes", "retry_max_times", as_int),
    ("groupRetryPolicy", "group_retry_policy", as_object),
    ("brokerId", "broker_id", as_long),
    ("whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", as_long),
    ("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", as_bool),
    ("groupSysFlag", "group_sys_flag", as_int),
    ("attributes", "attributes", as_texts),
)


def _customized() -> Mapping[str, object]:
    return {"type": "CUSTOMIZED"}


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """RocketMQ's SubscriptionGroupConfig; `extra` holds the fields unknown to this broker."""

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: Mapping[str, object] = field(default_factory=_customized)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def retry_queues(self) -> int:
        """The queues of the group's retry topic, at most `QUEUE_NUMS_MAX`."""
        return min(self.retry_queue_nums, QUEUE_NUMS_MAX)

    def to_json(self) -> dict[str, object]:
        """Returns the entry of subscriptionGroup.json."""
        return {**self.extra, **_FIELDS.encode(self), "groupName": self.group}

    @classmethod
    def from_json(cls, group: str, entry: object) -> SubscriptionGroupConfig:
        """Returns the group of an entry of subscriptionGroup.json. Raises ValueError."""
        return cls(group, **_FIELDS.decode(entry, "groupName"))
