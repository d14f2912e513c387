"""Fields of a newer RocketMQ in configuration files: they survive load, change and save."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.groups.changes import GroupChange
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.values import QueueBounds

NEWER = {"newerField": {"a": [1, None, {"b": "c"}]}, "newerFlag": True, "newerText": "Köln 😀"}
VERSION = {"counter": 7, "stateVersion": 3, "timestamp": 1_700_000_000_000, **NEWER}


def change_topics(folder: Path) -> None:
    topics = TopicConfigManager(folder, ManualClock(), "DefaultCluster", "broker-a")
    topics.load()
    asyncio.run(topics.alter([TopicChange("TopicA", perm=4)]))
    asyncio.run(topics.alter([TopicChange("TopicB", perm=2)]))


def change_groups(folder: Path) -> None:
    groups = SubscriptionGroupManager(folder, ManualClock())
    groups.load()
    for group in ("GroupA", "GroupB"):
        asyncio.run(groups.alter(GroupChange(group, {"retry_max_times": 3}), create_only=False))


def change_offsets(folder: Path) -> None:
    offsets = ConsumerOffsetManager(folder, ManualClock())
    offsets.load()
    offsets.commit("g", "TopicA", 0, 9)
    save_now(offsets)


def change_levels(folder: Path) -> None:
    levels = DelayOffsetManager(folder, ManualClock())
    levels.load(lambda _queue: QueueBounds(0, 100))
    levels.update(1, 9)
    save_now(levels)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("name", "change", "content", "own"),
    [
        (
            "topics.json",
            change_topics,
            {
                "topicConfigTable": {
                    "TopicA": {
                        "topicName": "TopicA",
                        "attributes": {"message.type": "LITE", "lite.topic.expiration": "30"},
                        "perm": 6,
                        **NEWER,
                    }
                }
            },
            {("topicConfigTable", "TopicA", "perm")},
        ),
        (
            "subscriptionGroup.json",
            change_groups,
            {
                "subscriptionGroupTable": {
                    "GroupA": {
                        "groupName": "GroupA",
                        "groupRetryPolicy": {"type": "EXPONENTIAL", **NEWER},
                        "attributes": {"priority.factor": "5", "lite.bind.topic": "Parent"},
                        "retryMaxTimes": 16,
                        **NEWER,
                    }
                },
                "forbiddenTable": {"GroupA": {"TopicA": 1}},
            },
            {("subscriptionGroupTable", "GroupA", "retryMaxTimes")},
        ),
        (
            "consumerOffset.json",
            change_offsets,
            {"offsetTable": {"TopicA@g": {"0": 5, "1": 6}, "TopicA@g@client": {"0": 3}}},
            {("offsetTable", "TopicA@g", "0")},
        ),
        (
            "delayOffset.json",
            change_levels,
            {"offsetTable": {"1": 5, "2": 6}},
            {("offsetTable", "1")},
        ),
    ],
    ids=["topics", "groups", "offsets", "levels"],
)
def test_b01_fields_that_this_broker_does_not_know_are_kept(
    tmp_path: Path,
    name: str,
    change: Callable[[Path], None],
    content: dict[str, Any],
    own: set[tuple[str, ...]],
    times: int,
) -> None:
    before = {**content, "dataVersion": VERSION, **NEWER}
    (tmp_path / name).write_text(json.dumps(before), encoding="utf-8")
    for _ in range(times):
        change(tmp_path)
    after = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    own |= {("dataVersion", "counter"), ("dataVersion", "timestamp")}
    assert lost(before, after, own) == []


def lost(
    before: object, after: object, own: set[tuple[str, ...]], path: tuple[str, ...] = ()
) -> list[str]:
    """Returns the places of `before` that differ in `after`, except for its `own`."""
    if path in own:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        places = [
            lost(value, after.get(name), own, (*path, name)) for name, value in before.items()
        ]
        return [place for some in places for place in some]
    return [] if before == after else [f"{'.'.join(path)}: {before!r} became {after!r}"]
