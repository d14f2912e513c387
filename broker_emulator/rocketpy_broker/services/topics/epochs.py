"""Epochs of topics: ids that distinguish recreated topics of one name.

An epoch is drawn at random when a topic is created. It is an attribute in `topics.json`. RocketMQ 5
keeps unknown attributes, and deletes them with the topic. RocketMQ 4 has no attributes, and drops
the epoch. An epoch 0 means unknown, and matches every epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace

from rocketpy_broker.errors import TopicNotExistError
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_proto.model.configs import TopicConfig

_EPOCH_END = 1 << 63


class TopicRecreatedError(TopicNotExistError):
    """A request for a topic that was deleted and recreated."""

    def __init__(self, topic: str, wanted: int, own: int) -> None:
        super().__init__(topic)
        self.remark = (
            f"topic {topic!r} was deleted and recreated: the request names epoch {wanted}, and "
            f"the topic has epoch {own}. Start at its first offset"
        )
        self.args = (self.remark,)


def made(config: TopicConfig) -> TopicEntry:
    """Returns a new topic with an epoch of its own."""
    return with_epoch(TopicEntry(config))


def with_epoch(entry: TopicEntry) -> TopicEntry:
    """Returns a topic with an epoch of its own."""
    return replace(entry, epoch=1 + secrets.randbelow(_EPOCH_END - 1))


def is_recreated(known: int, own: int) -> bool:
    """True if both epochs are known and differ."""
    return bool(known and own) and known != own


def made_elsewhere(topics: Mapping[str, TopicEntry]) -> dict[str, TopicEntry]:
    """Returns the topics that lack an epoch, each with a new one: RocketMQ has created them.

    Returns nothing if no topic has an epoch: RocketMQ 4 has written the file, so the origin of
    its topics is unknown.
    """
    if not any(entry.epoch for entry in topics.values()):
        return {}
    return {topic: with_epoch(entry) for topic, entry in topics.items() if not entry.epoch}
