"""Configuration of a topic: an entry of `config/topics.json`.

The epoch (see `epochs`) is stored only there, as an attribute.
Source: TopicConfig, docs/design/storage.md section 11.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from rocketpy_broker.services.config_files.json_fields import (
    JsonFields,
    as_bool,
    as_int,
    as_long,
    as_text,
    as_texts,
)

# For an entry without queue numbers, such as one of RocketMQ 3.
DEFAULT_QUEUE_NUMS = 16
# Maximum of queues per topic; further queues in the file of another broker are ignored.
QUEUE_NUMS_MAX = 65_536


class Perm(IntEnum):
    """The permissions of a topic."""

    INHERIT = 1
    WRITE = 2
    READ = 4


READ_WRITE = Perm.READ | Perm.WRITE
EPOCH = "rocketpy.epoch"
_FIELDS = JsonFields(
    ("readQueueNums", "read_queue_nums", as_int),
    ("writeQueueNums", "write_queue_nums", as_int),
    ("perm", "perm", as_int),
    ("attributes", "attributes", as_texts),
    ("order", "order", as_bool),
    ("topicFilterType", "topic_filter_type", as_text),
    ("topicSysFlag", "topic_sys_flag", as_int),
)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """RocketMQ's TopicConfig; `extra` holds the fields of the file unknown to this broker."""

    topic: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = int(READ_WRITE)
    attributes: Mapping[str, str] = field(default_factory=dict)
    order: bool = False
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    extra: Mapping[str, object] = field(default_factory=dict)
    # 0: unknown.
    epoch: int = 0

    @property
    def readable_queues(self) -> int:
        """The number of queues that can be read."""
        return min(self.read_queue_nums, QUEUE_NUMS_MAX)

    def to_json(self) -> dict[str, object]:
        """Returns the entry of topics.json."""
        entry = {**self.extra, **_FIELDS.encode(self), "topicName": self.topic}
        if self.epoch:
            entry["attributes"] = {**self.attributes, EPOCH: str(self.epoch)}
        return entry

    @classmethod
    def from_json(cls, topic: str, entry: object) -> TopicConfig:
        """Returns the topic of an entry of topics.json. Raises ValueError.

        Missing fields get RocketMQ's defaults.
        """
        nums = {"read_queue_nums": DEFAULT_QUEUE_NUMS, "write_queue_nums": DEFAULT_QUEUE_NUMS}
        fields = {**nums, **_FIELDS.decode(entry, "topicName")}
        attributes = dict(fields.get("attributes", {}))
        if EPOCH in attributes:
            fields["epoch"] = as_long(attributes.pop(EPOCH))
            fields["attributes"] = attributes
        return cls(topic, **fields)
