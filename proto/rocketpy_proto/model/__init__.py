"""RocketMQ's words: codes, ids, enums, configurations, columns; here its names.

The names are in the package itself: Spark's processes need some, and each module costs them half a
millisecond.
Source: TopicValidator, MixAll, TopicMessageType and ExpressionType of RocketMQ 5.5.0,
docs/design/storage.md sections 11.2 and 12.1.
"""

from __future__ import annotations

# The template of topics that a send creates.
AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
# Messages with a delay level, and messages with a delivery time.
SCHEDULE_TOPIC, TIMER_TOPIC = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
# Their messages name their real topic and queue, and get there later.
WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
# RocketMQ 5.5 creates them for transactions in RocksDB.
ROCKSDB_TOPICS = ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
RESERVED_PREFIX = "rmq_sys_"
# Suffix of a cluster's topic for replies.
REPLY_SUFFIX = "_REPLY_TOPIC"
# Prefix of a consumer group's topic for messages to consume again.
RETRY_PREFIX = "%RETRY%"
# Prefix of a consumer group's topic for dead letters.
DEAD_LETTER_PREFIX = "%DLQ%"
# Prefix of groups of the broker itself, without clients.
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = f"{SYSTEM_GROUP_PREFIX}TRANS"
# The attribute of a topic with the type of messages that it accepts.
MESSAGE_TYPE = "message.type"
NORMAL, FIFO, DELAY, TRANSACTION = "NORMAL", "FIFO", "DELAY", "TRANSACTION"
PRIORITY = "PRIORITY"
# Of topics alone: all types, and no attribute.
MIXED, UNSPECIFIED = "MIXED", "UNSPECIFIED"
MESSAGE_TYPES = (UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED)
# Types of filter expressions. All messages match EVERYTHING; OR is between two tags.
TAG, SQL92 = "TAG", "SQL92"
EVERYTHING, OR = "*", "||"
# Topics of brokers themselves, and topics named after a group.
_SYSTEM_TOPICS = frozenset(
    {
        *(AUTO_CREATE_TOPIC, SELF_TEST_TOPIC, BENCHMARK_TOPIC, SCHEDULE_TOPIC, OFFSET_MOVED_EVENT),
        "DefaultHeartBeatSyncerTopic",
    }
)
_PREFIXES = (
    *(RETRY_PREFIX, DEAD_LETTER_PREFIX, RESERVED_PREFIX, "RMQ_SYS_", SYSTEM_GROUP_PREFIX),
    "TRANS_CHECK_MAX_TIME_",
)


def is_system_topic(topic: str) -> bool:
    """True if a topic is RocketMQ's own, by its name; `%RETRY%` and `%DLQ%` topics are.

    A broker also has topics of its own name and its cluster's.
    """
    return topic in _SYSTEM_TOPICS or topic.startswith(_PREFIXES) or topic.endswith(REPLY_SUFFIX)


def retry_topic(group: str) -> str:
    """Returns the retry topic of a consumer group."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Returns the dead-letter topic of a consumer group."""
    return DEAD_LETTER_PREFIX + group
