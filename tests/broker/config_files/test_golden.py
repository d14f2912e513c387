"""Tables that RocketMQ 5.3.3 wrote: fields that only it knows survive our rewriting."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.topics.changes import TopicChange
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model.configs import SubscriptionGroupConfig
from tests.support.golden import GOLDEN

TOPICS = GOLDEN / "cluster" / "all_topic_config_21.json"
GROUPS = GOLDEN / "cluster" / "all_subscription_group_201.json"
NEWER = {"newerField": {"a": [1, None, {"b": "c"}]}, "newerFlag": True}


def golden(path: Path, table: str) -> dict[str, Any]:
    """Returns RocketMQ's table as a newer version may write it: with unknown fields."""
    content: dict[str, Any] = json.loads(path.read_text())
    for entry in content[table].values():
        entry.update(NEWER)
    return {**content, "newerTable": {"x": NEWER}}


def test_b01_n03_rocketmq_s_topics_keep_every_field_over_a_change_of_one(tmp_path: Path) -> None:
    before = golden(TOPICS, "topicConfigTable")
    table = before["topicConfigTable"]
    assert len(table) > 10
    (tmp_path / "topics.json").write_text(json.dumps(before))
    topics = TopicConfigManager(tmp_path, ManualClock(), "DefaultCluster", "broker-a")
    topics.load()
    asyncio.run(topics.alter([TopicChange("TopicTest", perm=4)]))
    after = json.loads((tmp_path / "topics.json").read_text())
    own = after["topicConfigTable"].keys() - table.keys()
    assert all(topics.is_system(topic) for topic in own)
    table["TopicTest"]["perm"] = 4
    assert {topic: after["topicConfigTable"][topic] for topic in table} == table
    for name in before.keys() - {"topicConfigTable", "dataVersion"}:
        assert after[name] == before[name]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1


def test_b01_rocketmq_s_groups_keep_every_field_over_a_change_of_one(tmp_path: Path) -> None:
    before = golden(GROUPS, "subscriptionGroupTable")
    table = before["subscriptionGroupTable"]
    assert "CG" in table
    (tmp_path / "subscriptionGroup.json").write_text(json.dumps(before))
    groups = SubscriptionGroupManager(tmp_path, ManualClock())
    groups.load()
    asyncio.run(groups.update(SubscriptionGroupConfig("CG", retry_max_times=3)))
    after = json.loads((tmp_path / "subscriptionGroup.json").read_text())
    table["CG"]["retryMaxTimes"] = 3
    assert {group: after["subscriptionGroupTable"][group] for group in table} == table
    for name in before.keys() - {"subscriptionGroupTable", "dataVersion"}:
        assert after[name] == before[name]
