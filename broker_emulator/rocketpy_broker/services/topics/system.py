"""System topics of a broker, and reserved topic names.

Source: TopicConfigManager and TopicValidator of RocketMQ 5.5.0, docs/design/storage.md section
12.1.
"""

from __future__ import annotations

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_proto.model import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_EVENT,
    OP_TOPIC,
    REPLY_SUFFIX,
    RESERVED_PREFIX,
    ROCKSDB_TOPICS,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from rocketpy_proto.model.configs import READ_WRITE, Perm, TopicConfig

# Decisions about batches. The topic is not configured, so clients neither send to it nor
# read it. Its prefix keeps any broker, also RocketMQ's, from listing, creating or cleaning it.
BATCHES_TOPIC = f"{RESERVED_PREFIX}rocketpy_batches"
# Topics that clients must not send to.
SEND_FORBIDDEN = frozenset(
    {
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        *ROCKSDB_TOPICS,
    }
)
# Reserved also if the options of the broker do not create them.
RESERVED = SEND_FORBIDDEN | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, "CHECKPOINT_TOPIC", TRACE_TOPIC}
REVIVE_PREFIX = f"{RESERVED_PREFIX}REVIVE_LOG_"


def revive_topic(cluster_name: str) -> str:
    """Returns the topic for check points and acknowledgements of popped messages."""
    return REVIVE_PREFIX + cluster_name


def system_topics(
    cluster_name: str, broker_name: str, options: SystemTopicOptions
) -> dict[str, TopicConfig]:
    """Returns the topics that the broker has from its start, by name."""
    inherited = READ_WRITE | Perm.INHERIT
    rows = [
        (SELF_TEST_TOPIC, 1, READ_WRITE),
        (BENCHMARK_TOPIC, 1024, READ_WRITE),
        (cluster_name, 16, inherited),
        (broker_name, 1, inherited),
        (OFFSET_MOVED_EVENT, 1, READ_WRITE),
        (SCHEDULE_TOPIC, 18, READ_WRITE),
        (cluster_name + REPLY_SUFFIX, 1, READ_WRITE),
        (revive_topic(cluster_name), options.revive_queue_nums, READ_WRITE),
        (f"{RESERVED_PREFIX}SYNC_BROKER_MEMBER_{broker_name}", 1, Perm.INHERIT),
        (HALF_TOPIC, 1, READ_WRITE),
        (OP_TOPIC, 1, READ_WRITE),
    ]
    if options.auto_create_topic_enable:
        rows.append((AUTO_CREATE_TOPIC, options.default_topic_queue_nums, inherited))
    if options.trace_topic_enable:
        rows.append((TRACE_TOPIC, 1, READ_WRITE))
    if options.timer_wheel_enable:
        rows.append((TIMER_TOPIC, 1, READ_WRITE))
    return {topic: TopicConfig(topic, nums, nums, int(perm)) for topic, nums, perm in rows}
