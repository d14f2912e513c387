"""Configurations of topics and groups, and their versions.

Source: docs/design/remoting.md section 4.7, docs/design/storage.md section 11.4.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Body, Int32, Int64


class DataVersion(Body, frozen=True):
    """The number of changes of a table, and the time of the last one."""

    counter: Int64
    changed_ms: Int64 = field(name="timestamp")
    # Absent in 4.9.
    state_version: Int64 | None = None


class TopicConfig(Body, frozen=True):
    """A topic at one broker. Fields that old brokers omit have RocketMQ's defaults."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    is_order: bool = field(name="order", default=False)
    attributes: dict[str, str] | None = None


class TopicConfigTable(Body, frozen=True):
    """GET_ALL_TOPIC_CONFIG, and part of a registration.

    The mappings of static topics are kept as received.
    """

    topic_configs: dict[str, TopicConfig] = field(name="topicConfigTable", default_factory=dict)
    data_version: DataVersion | None = None
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, object] | None = None
    topic_queue_mapping_info_map: dict[str, object] | None = None


class CreateTopicListRequestBody(Body, frozen=True):
    """UPDATE_AND_CREATE_TOPIC_LIST. The keys of attributes are `+key` and `-key`."""

    topic_configs: tuple[TopicConfig, ...] = field(name="topicConfigList", default=())


class SubscriptionGroupConfig(Body, frozen=True):
    """A consumer group at one broker."""

    group_name: str
    is_consume_enabled: bool = field(name="consumeEnable", default=True)
    is_consume_from_min_enabled: bool = field(name="consumeFromMinEnable", default=True)
    is_consume_broadcast_enabled: bool = field(name="consumeBroadcastEnable", default=True)
    is_consumed_orderly: bool = field(name="consumeMessageOrderly", default=False)
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, object] | None = None
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    is_consumer_ids_change_notified: bool = field(
        name="notifyConsumerIdsChangedEnable", default=True
    )
    group_sys_flag: Int32 = 0
    consume_timeout_minutes: Int32 = field(name="consumeTimeoutMinute", default=15)
    attributes: dict[str, str] | None = None
    subscription_data_set: tuple[dict[str, object], ...] | None = None


class SubscriptionGroupTable(Body, frozen=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    groups: dict[str, SubscriptionGroupConfig] = field(
        name="subscriptionGroupTable", default_factory=dict
    )
    # Forbidden operations as bits, by group and topic.
    forbidden_table: dict[str, dict[str, Int32]] = field(default_factory=dict)
    data_version: DataVersion | None = None


class ReplicationState(Body, frozen=True):
    """GET_REPLICATION_STATE: facts for a slave that RocketMQ's tables lack.

    `deleted_below` and `emptied_below` are physical offsets, by topic: its older messages are
    deleted. `epochs` has the epoch of each topic. `recoveries` has id and log end of each,
    oldest first.
    """

    store_id: str
    deleted_below: dict[str, Int64] = field(default_factory=dict)
    emptied_below: dict[str, Int64] = field(default_factory=dict)
    epochs: dict[str, Int64] = field(default_factory=dict)
    recoveries: tuple[tuple[str, Int64], ...] = ()
    # The epoch of the last promotion; 0 without one.
    epoch: Int64 = 0


class StagedFileChange(Body, frozen=True):
    """A file of staged blocks that was completed or removed; `fingerprint` is its attempt's."""

    name: str
    fingerprint: Int64
    is_removed: bool = False


class StagedFileChanges(Body, frozen=True):
    """GET_STAGED_FILES: changes in the order in which the master made them."""

    changes: tuple[StagedFileChange, ...] = ()
