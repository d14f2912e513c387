"""Changes of a topic by a request.

A request changes only the values that it names. In RocketMQ it replaces all but the attributes.
Source: UPDATE_AND_CREATE_TOPIC, docs/design/broker_behaviour.md section 9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from rocketpy_broker.errors import BrokerError, TopicIllegalError
from rocketpy_broker.services.topics.attributes import ADD, altered
from rocketpy_proto.model import MESSAGE_TYPE, MIXED
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.model.configs import (
    MULTI_TAG,
    QUEUE_NUMS_MAX,
    READ_WRITE,
    SINGLE_TAG,
    Perm,
    TopicConfig,
)

FILTER_TYPES = (SINGLE_TAG, MULTI_TAG)
# Queues of a new topic by default.
NEW_QUEUE_NUMS = 8
# Bits: unit, unit subscription.
SYS_FLAG_MAX = 3


class TopicExistsError(BrokerError):
    """A request to create a topic that exists already."""

    code = ResponseCode.TOPIC_EXIST_ALREADY

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already; change it, or choose another name")


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Values to change; None keeps the topic's value, and means the default in a new topic.

    `attributes` have the keys `+name`, with the new value, and `-name`.
    """

    topic: str
    read_queue_nums: int | None = None
    write_queue_nums: int | None = None
    perm: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    order: bool | None = None
    topic_filter_type: str | None = None
    topic_sys_flag: int | None = None

    def of(self, old: TopicConfig | None) -> TopicConfig:
        """Returns the topic after the change. Raises TopicAttributeError."""
        attributes = altered(None if old is None else old.attributes, self.attributes)
        return structs.replace(old or _new(self.topic), **self._given(), attributes=attributes)

    def _given(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in given.items() if value is not None}

    def check(self, *, enable_mixed_message_type: bool) -> None:
        """Raises TopicIllegalError for an illegal value."""
        # Checks only the requested values: RocketMQ's topics may have values that are illegal here.
        check_values(structs.replace(_new(self.topic), **self._given()))
        is_mixed = self.attributes.get(ADD + MESSAGE_TYPE) == MIXED
        if is_mixed and not enable_mixed_message_type:
            raise TopicIllegalError(
                "MIXED message type is not supported. Start the broker with "
                "--enable-mixed-message-type, or leave the topic without a message type"
            )


# Fields of a change that replace a value.
FIELDS = (
    "read_queue_nums",
    "write_queue_nums",
    "perm",
    "order",
    "topic_filter_type",
    "topic_sys_flag",
)


def _new(topic: str) -> TopicConfig:
    return TopicConfig(topic, NEW_QUEUE_NUMS, NEW_QUEUE_NUMS)


def check_values(config: TopicConfig) -> None:
    """Raises TopicIllegalError for an illegal value."""
    topic = config.topic
    for name, nums in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        if not 1 <= nums <= QUEUE_NUMS_MAX:
            raise TopicIllegalError(
                f"{name}_queue_nums of topic {topic!r} is {nums}, accepted is 1 to {QUEUE_NUMS_MAX}"
            )
    if not 0 < config.perm <= int(READ_WRITE | Perm.INHERIT):
        raise TopicIllegalError(f"perm of topic {topic!r} is {config.perm}, accepted is 1 to 7")
    if config.topic_filter_type not in FILTER_TYPES:
        raise TopicIllegalError(
            f"topic_filter_type of topic {topic!r} is {config.topic_filter_type!r:.100}, "
            f"accepted is {' or '.join(FILTER_TYPES)}"
        )
    if not 0 <= config.topic_sys_flag <= SYS_FLAG_MAX:
        raise TopicIllegalError(
            f"topic_sys_flag of topic {topic!r} is {config.topic_sys_flag}, "
            f"accepted is 0 to {SYS_FLAG_MAX}"
        )
