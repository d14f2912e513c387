"""Epochs of topics: what tells a topic from one of the same name that was deleted. Holds no state.

An epoch is drawn when a topic is made, and stands among its attributes in `topics.json`, where
RocketMQ 5 keeps what it does not know, and forgets it with the topic. RocketMQ 4 has no attributes,
and drops it. 0 stands for none: such a topic may be any.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from rocketpy_broker.errors import TopicNotExistError
from rocketpy_broker.services.topics.config import TopicConfig

_EPOCH_END = 1 << 63


class TopicRecreatedError(TopicNotExistError):
    """The topic that is meant was deleted, and there is another one of its name."""

    def __init__(self, topic: str, wanted: int, own: int) -> None:
        super().__init__(topic)
        self.remark = (
            f"topic {topic!r} was deleted and made again: epoch {wanted} is meant, and the topic "
            f"has epoch {own} now; begin at its start"
        )
        self.args = (self.remark,)


def made(config: TopicConfig) -> TopicConfig:
    """Returns a topic that comes to be, with an epoch of its own."""
    return replace(config, epoch=1 + secrets.randbelow(_EPOCH_END - 1))


def is_remade(known: int, own: int) -> bool:
    """True if two epochs are of different topics, as far as both are known."""
    return bool(known and own) and known != own


def made_elsewhere(topics: Mapping[str, TopicConfig]) -> dict[str, TopicConfig]:
    """Returns the topics of a file that have no epoch where others have one: RocketMQ has made them.

    Where no topic has one, RocketMQ 4 or an older version of this broker has written the file, and
    nothing is known.
    """
    if not any(config.epoch for config in topics.values()):
        return {}
    return {topic: made(config) for topic, config in topics.items() if not config.epoch}
