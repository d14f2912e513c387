"""RocketMQ's own topics, which a pattern never matches.

These are the topics of brokers themselves, and topics named after a group. Option
includeRetryTopic adds a `%RETRY%` topic. Dead letters (`%DLQ%`) are read by the
topic's own name in option topic.

Source: TopicValidator of RocketMQ 5.3.3, docs/design/cluster.md section 3.3.
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
    """True if a topic is RocketMQ's own, by its name; `%RETRY%` and `%DLQ%` topics are."""
    return topic in _SYSTEM_TOPICS or topic.startswith(_PREFIXES) or topic.endswith(_SUFFIXES)
