"""RocketMQ's configurations of topics and groups, and their tables' versions.

Source: TopicConfig, SubscriptionGroupConfig and DataVersion, docs/design/remoting.md section 4.7,
docs/design/storage.md sections 11.1, 11.2 and 11.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from msgspec import field

from rocketpy_proto.struct_types import Body, Int32, Int64

# The most queues of a topic; further queues in a file that RocketMQ's broker wrote are ignored.
QUEUE_NUMS_MAX = 65_536
# Types of filters of a topic; brokers ignore them.
SINGLE_TAG, MULTI_TAG = "SINGLE_TAG", "MULTI_TAG"
# The policy of a group that names none. It is the same object for each of them.
CUSTOMIZED: Mapping[str, object] = {"type": "CUSTOMIZED"}


class Perm(IntEnum):
    """Bits of a topic's permissions."""

    INHERIT = 1
    WRITE = 2
    READ = 4


READ_WRITE = Perm.READ | Perm.WRITE


class DataVersion(Body, frozen=True):
    """The number of changes of a table, and the time of the last one."""

    counter: Int64 = 0
    timestamp_ms: Int64 = field(name="timestamp", default=0)
    # Absent in RocketMQ 4.
    state_version: Int64 = 0

    def next(self, now_ms: int) -> DataVersion:
        """Returns the version after one more change."""
        return DataVersion(self.counter + 1, now_ms, self.state_version)


NO_VERSION = DataVersion()


class TopicConfig(Body, frozen=True):
    """A topic at one broker. Fields that old brokers omit have RocketMQ's defaults."""

    topic: str = field(name="topicName")
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = int(READ_WRITE)
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def readable_queues(self) -> int:
        """The number of queues that can be read."""
        return min(self.read_queue_nums, QUEUE_NUMS_MAX)


class SubscriptionGroupConfig(Body, frozen=True):
    """A consumer group at one broker."""

    group: str = field(name="groupName")
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: Mapping[str, object] = field(default_factory=lambda: CUSTOMIZED)
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def retry_queues(self) -> int:
        """The queues of the group's retry topic, at most `QUEUE_NUMS_MAX`."""
        return min(self.retry_queue_nums, QUEUE_NUMS_MAX)
