"""Tables of topics and groups, and facts for slaves.

Source: docs/design/remoting.md section 4.7, docs/design/storage.md section 11.4.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.model.configs import DataVersion, SubscriptionGroupConfig, TopicConfig
from rocketpy_proto.struct_types import Body, Int32, Int64


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

    `deleted_below` and `emptied_below` are physical offsets by topic. Records of the topic below
    them are removed: with a deletion of the topic, or by emptying it. `epochs` has the epoch of
    each topic. `recoveries` has id and log end of each recovery, oldest first.
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
