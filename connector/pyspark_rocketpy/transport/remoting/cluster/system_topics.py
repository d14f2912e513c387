"""RocketMQ's own topics, which a pattern never means. Holds no state.

Left out is what brokers keep for themselves, and what is named after a group: a `%RETRY%` topic
comes with option withRetries, dead letters (`%DLQ%`) by the topic's own name in option topic.
Source: TopicValidator of RocketMQ 5.3.3, docs/design/cluster.md 3.3.
"""

from __future__ import annotations

_SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "DefaultHeartBeatSyncerTopic",
        "DefaultCluster_REPLY_TOPIC",
    }
)
_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_", "CID_RMQ_SYS_", "TRANS_CHECK_MAX_TIME_")
_SUFFIXES = ("_REPLY_TOPIC",)


def is_system_topic(topic: str) -> bool:
    """True if it is RocketMQ's own, by its name; `%RETRY%` and `%DLQ%` topics are."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_PREFIXES) or topic.endswith(_SUFFIXES)
