"""The topics of this broker: `config/topics.json`.

Every change is on disk before it is answered, so a crash loses none. Queues are made by the store
with their first message; this table says how many a topic has.
Source: TopicConfigManager, spec/storage.md sections 11.2 and 12.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any

from rocketpy_broker.clock import Clock
from rocketpy_broker.errors import (
    ConfigFileError,
    PermissionDeniedError,
    QueueIdIllegalError,
    TopicIllegalError,
    TopicNotExistError,
)
from rocketpy_broker.services.config_file import ConfigFile

TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")
TOPIC_BYTES_MAX = 127
QUEUE_NUMS_MAX = 65_536


class Perm(IntFlag):
    """What may be done with a topic (spec 11.2)."""

    INHERIT = 1
    WRITE = 2
    READ = 4


READ_WRITE = Perm.READ | Perm.WRITE
# Topics that clients may not send to (spec 12.1).
SEND_FORBIDDEN = frozenset(
    {
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIX = "rmq_sys_"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """RocketMQ's TopicConfig."""

    topic: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = int(READ_WRITE)
    attributes: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The entry of topics.json."""
        return {
            "attributes": dict(self.attributes),
            "order": False,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.topic,
            "topicSysFlag": 0,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_json(cls, topic: str, entry: Mapping[str, Any]) -> TopicConfig:
        """An entry of topics.json; fields that are missing get RocketMQ's defaults."""
        return cls(
            topic,
            int(entry.get("readQueueNums", 16)),
            int(entry.get("writeQueueNums", 16)),
            int(entry.get("perm", READ_WRITE)),
            dict(entry.get("attributes", {})),
        )


def system_topics(cluster_name: str, broker_name: str) -> dict[str, TopicConfig]:
    """The topics that every broker has from its first start on (spec 12.1)."""
    inherited = int(READ_WRITE | Perm.INHERIT)
    rows = [
        ("SELF_TEST_TOPIC", 1, READ_WRITE),
        ("TBW102", 8, inherited),
        ("BenchmarkTest", 1024, READ_WRITE),
        (cluster_name, 16, inherited),
        (broker_name, 1, inherited),
        ("OFFSET_MOVED_EVENT", 1, READ_WRITE),
        ("SCHEDULE_TOPIC_XXXX", 18, READ_WRITE),
        (f"{cluster_name}_REPLY_TOPIC", 1, READ_WRITE),
        (f"rmq_sys_REVIVE_LOG_{cluster_name}", 8, READ_WRITE),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, Perm.INHERIT),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, READ_WRITE),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, READ_WRITE),
        ("rmq_sys_wheel_timer", 1, READ_WRITE),
    ]
    return {topic: TopicConfig(topic, nums, nums, int(perm)) for topic, nums, perm in rows}


class TopicConfigManager:
    """The table of topics."""

    def __init__(self, folder: Path, clock: Clock, cluster_name: str, broker_name: str) -> None:
        self._file = ConfigFile(folder / "topics.json")
        self._clock = clock
        self._system = system_topics(cluster_name, broker_name)
        self._topics = dict(self._system)
        self._counter = 0

    def load(self) -> None:
        """Read the file; write it at the first start. Raises ConfigFileError, OSError."""
        content = self._file.load()
        if content is None:
            self._save(self._topics)
            return
        try:
            version: Any = content.get("dataVersion", {})
            table: Any = content.get("topicConfigTable", {})
            self._counter = int(version.get("counter", 0))
            loaded = {topic: TopicConfig.from_json(topic, table[topic]) for topic in table}
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigFileError(self._file.path, f"unexpected content: {error}") from error
        self._topics = {**self._system, **loaded}

    def _save(self, topics: dict[str, TopicConfig]) -> None:
        counter = self._counter + 1
        self._file.save(
            {
                "dataVersion": {
                    "counter": counter,
                    "stateVersion": 0,
                    "timestamp": self._clock.now_ms(),
                },
                "topicConfigTable": {name: topics[name].to_json() for name in sorted(topics)},
            }
        )
        self._topics, self._counter = topics, counter

    def get(self, topic: str) -> TopicConfig:
        """The topic's configuration. Raises TopicNotExistError."""
        found = self._topics.get(topic)
        if found is None:
            raise TopicNotExistError(topic)
        return found

    def list(self, *, include_system: bool) -> list[TopicConfig]:
        """All topics by name."""
        return [
            self._topics[name]
            for name in sorted(self._topics)
            if include_system or not self.is_system(name)
        ]

    def is_system(self, topic: str) -> bool:
        """Whether the topic is the broker's own."""
        return topic in self._system or topic in SEND_FORBIDDEN or topic.startswith(SYSTEM_PREFIX)

    def update(self, config: TopicConfig, *, create_only: bool) -> None:
        """Create or change a topic. Raises TopicIllegalError, OSError; then nothing has changed."""
        self._check(config)
        old = self._topics.get(config.topic)
        if old is not None and create_only:
            raise TopicIllegalError(f"topic {config.topic!r} exists already; choose another name")
        if old is not None and config.read_queue_nums < old.read_queue_nums:
            raise TopicIllegalError(
                f"topic {config.topic!r} has {old.read_queue_nums} queues, "
                f"{config.read_queue_nums} would hide messages; only add queues"
            )
        self._save({**self._topics, config.topic: config})

    def _check(self, config: TopicConfig) -> None:
        topic = config.topic
        if not TOPIC_PATTERN.fullmatch(topic) or len(topic) > TOPIC_BYTES_MAX:
            raise TopicIllegalError(
                f"topic name {topic!r} is illegal; use 1 to {TOPIC_BYTES_MAX} of the characters "
                "a-z A-Z 0-9 _ - % |"
            )
        if self.is_system(topic):
            raise TopicIllegalError(f"topic name {topic!r} is reserved; choose another name")
        for name, nums in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
            if not 1 <= nums <= QUEUE_NUMS_MAX:
                raise TopicIllegalError(
                    f"{name}_queue_nums of topic {topic!r} is {nums}, "
                    f"accepted is 1 to {QUEUE_NUMS_MAX}"
                )
        if not 0 < config.perm <= int(READ_WRITE | Perm.INHERIT):
            raise TopicIllegalError(f"perm of topic {topic!r} is {config.perm}, accepted is 1 to 7")

    def check_deletable(self, topic: str) -> None:
        """Raises TopicNotExistError, TopicIllegalError for a topic of the broker's own."""
        self.get(topic)
        if self.is_system(topic):
            raise TopicIllegalError(f"topic {topic!r} is the broker's own and stays")

    def delete(self, topic: str) -> None:
        """Remove a topic. Raises TopicNotExistError, TopicIllegalError, OSError."""
        self.check_deletable(topic)
        self._save({name: self._topics[name] for name in self._topics if name != topic})

    def check_writable(self, topic: str, queue_id: int) -> TopicConfig:
        """The topic, if clients may send to that queue; -1 stands for any queue.

        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        config = self.get(topic)
        if topic in SEND_FORBIDDEN:
            raise PermissionDeniedError(f"sending to the system topic {topic!r} is forbidden")
        if not config.perm & Perm.WRITE:
            raise PermissionDeniedError(f"topic {topic!r} is not writable (perm {config.perm})")
        if not -1 <= queue_id < config.write_queue_nums:
            raise QueueIdIllegalError(topic, queue_id, config.write_queue_nums)
        return config

    def check_readable(self, topic: str, queue_id: int) -> TopicConfig:
        """The topic, if that queue may be read.

        Raises TopicNotExistError, PermissionDeniedError, QueueIdIllegalError.
        """
        config = self.get(topic)
        if not config.perm & Perm.READ:
            raise PermissionDeniedError(f"topic {topic!r} is not readable (perm {config.perm})")
        if not 0 <= queue_id < config.read_queue_nums:
            raise QueueIdIllegalError(topic, queue_id, config.read_queue_nums)
        return config
