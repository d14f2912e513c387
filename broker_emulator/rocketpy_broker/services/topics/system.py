"""System topics of a broker, and reserved topic names.

Source: TopicConfigManager and TopicValidator of RocketMQ 5.5.0, docs/design/storage.md section
12.1.
"""

from __future__ import annotations

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.services.topics.config import READ_WRITE, Perm, TopicConfig

AUTO_CREATE_TOPIC = "TBW102"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# RocketMQ 5.5 creates them for transactions in RocksDB.
ROCKSDB_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
# Decisions about batches. The topic is not configured, so clients neither send to it nor
# read it. Its prefix keeps any broker, also RocketMQ's, from listing, creating or cleaning it.
BATCHES_TOPIC = "rmq_sys_rocketpy_batches"
# Prefix of a consumer group's topic for messages to consume again.
RETRY_PREFIX = "%RETRY%"
# Prefix of a consumer group's topic for dead letters.
DEAD_LETTER_PREFIX = "%DLQ%"
# Topics that clients must not send to.
SEND_FORBIDDEN = frozenset(
    {
        "SELF_TEST_TOPIC",
        OFFSET_MOVED_EVENT,
        "SCHEDULE_TOPIC_XXXX",
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        *ROCKSDB_TOPICS,
    }
)
# Reserved also if the options of the broker do not create them.
RESERVED = SEND_FORBIDDEN | {AUTO_CREATE_TOPIC, "BenchmarkTest", "CHECKPOINT_TOPIC", TRACE_TOPIC}
RESERVED_PREFIX = "rmq_sys_"
REVIVE_PREFIX = f"{RESERVED_PREFIX}REVIVE_LOG_"


def retry_topic(group: str) -> str:
    """Returns the retry topic of a consumer group."""
    return RETRY_PREFIX + group


def revive_topic(cluster_name: str) -> str:
    """Returns the topic for check points and acknowledgements of popped messages."""
    return REVIVE_PREFIX + cluster_name


def dead_letter_topic(group: str) -> str:
    """Returns the dead-letter topic of a consumer group."""
    return DEAD_LETTER_PREFIX + group


def system_topics(
    cluster_name: str, broker_name: str, options: SystemTopicOptions
) -> dict[str, TopicConfig]:
    """Returns the topics that the broker has from its start, by name."""
    inherited = READ_WRITE | Perm.INHERIT
    rows = [
        ("SELF_TEST_TOPIC", 1, READ_WRITE),
        ("BenchmarkTest", 1024, READ_WRITE),
        (cluster_name, 16, inherited),
        (broker_name, 1, inherited),
        (OFFSET_MOVED_EVENT, 1, READ_WRITE),
        ("SCHEDULE_TOPIC_XXXX", 18, READ_WRITE),
        (f"{cluster_name}_REPLY_TOPIC", 1, READ_WRITE),
        (revive_topic(cluster_name), options.revive_queue_nums, READ_WRITE),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, Perm.INHERIT),
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
