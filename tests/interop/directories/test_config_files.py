"""The JSON files below `config/`, exchanged between our managers and RocketMQ's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.offsets.committed import NOT_COMMITTED, ConsumerOffsetManager
from rocketpy_broker.services.topics.entry import TopicEntry
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_proto.model.configs import Perm, SubscriptionGroupConfig, TopicConfig
from tests.interop.rocketmq import RocketMQStore

CLUSTER, BROKER = "DefaultCluster", "broker-a"


@pytest.fixture
def rocketmq(tmp_path: Path) -> Iterator[RocketMQStore]:
    """Yields RocketMQ's managers, in a process without a store."""
    with RocketMQStore(tmp_path / "rocketmq.log", tmp_path) as process:
        yield process


def our_topics(folder: Path) -> TopicConfigManager:
    """Returns our table of topics over a store's folder."""
    topics = TopicConfigManager(folder / "config", SystemClock(), CLUSTER, BROKER)
    topics.load()
    return topics


@pytest.fixture
def store_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    (folder / "config").mkdir(parents=True)
    return folder


def test_b05_rocketmq_reads_our_topics(rocketmq: RocketMQStore, store_folder: Path) -> None:
    topics = our_topics(store_folder)
    plain = TopicConfig("Plain", 4, 4)
    fifo = TopicConfig("Fifo", 3, 2, int(Perm.READ), attributes={"message.type": "FIFO"})
    for config in (plain, fifo):
        asyncio.run(topics.update(config, create_only=True))
    found = rocketmq.ask("readConfig", folder=str(store_folder))["topics"]
    for name, entry in topics.copy().items():
        assert found[name] == entry.to_json()
    assert {"Plain", "Fifo"} <= found.keys()


def test_b05_rocketmq_reads_our_consumer_offsets(
    rocketmq: RocketMQStore, store_folder: Path
) -> None:
    offsets = ConsumerOffsetManager(store_folder / "config", SystemClock())
    offsets.commit("g1", "TopicA", 0, 250)
    offsets.commit("g1", "TopicA", 11, 1 << 40)
    offsets.commit("g1", "%RETRY%g1", 0, 3)
    save_now(offsets)
    found = rocketmq.ask("readConfig", folder=str(store_folder))["offsets"]
    assert found == {"TopicA@g1": {"0": 250, "11": 1 << 40}, "%RETRY%g1@g1": {"0": 3}}


def test_b05_we_read_rocketmqs_topics(rocketmq: RocketMQStore, store_folder: Path) -> None:
    plain = TopicConfig("Plain", 4, 4)
    fifo = TopicConfig("Fifo", 3, 2, int(Perm.READ), attributes={"message.type": "FIFO"})
    rocketmq.ask(
        "writeConfig",
        folder=str(store_folder),
        topics=[TopicEntry(plain).to_json(), TopicEntry(fifo).to_json()],
        groups=["g1"],
        commits=[],
    )
    topics = our_topics(store_folder)
    assert topics.copy()["Plain"] == TopicEntry(plain)
    assert topics.copy()["Fifo"] == TopicEntry(fifo)
    theirs = rocketmq.ask("readConfig", folder=str(store_folder))["topics"]
    ours = {name: entry.to_json() for name, entry in topics.copy().items()}
    assert ours == theirs
    users = [config.topic for config in topics.list(include_system=False)]
    assert users == ["Fifo", "Plain"]


def test_b05_we_read_rocketmqs_consumer_offsets(
    rocketmq: RocketMQStore, store_folder: Path
) -> None:
    commits = [("g1", "TopicA", 0, 250), ("g1", "TopicA", 11, 1 << 40), ("g1", "%RETRY%g1", 0, 3)]
    names = ("group", "topic", "queueId", "offset")
    rocketmq.ask(
        "writeConfig",
        folder=str(store_folder),
        topics=[],
        groups=[],
        commits=[dict(zip(names, commit, strict=True)) for commit in commits],
    )
    offsets = ConsumerOffsetManager(store_folder / "config", SystemClock())
    offsets.load()
    for group, topic, queue_id, offset in commits:
        assert offsets.query(group, topic, queue_id) == offset
    assert offsets.query("g1", "TopicA", 1) == NOT_COMMITTED
    offsets.commit("g2", "TopicA", 0, 7)
    save_now(offsets)
    found = rocketmq.ask("readConfig", folder=str(store_folder))["offsets"]
    assert found["TopicA@g1"] == {"0": 250, "11": 1 << 40}
    assert found["TopicA@g2"] == {"0": 7}


def test_b05_groups_go_both_ways(rocketmq: RocketMQStore, store_folder: Path) -> None:
    rocketmq.ask("writeConfig", folder=str(store_folder), topics=[], groups=["g1"], commits=[])
    theirs = rocketmq.ask("readConfig", folder=str(store_folder))["groups"]
    groups = SubscriptionGroupManager(store_folder / "config", SystemClock())
    groups.load()
    assert {config.group for config in groups.list()} == theirs.keys()
    asyncio.run(
        groups.update(SubscriptionGroupConfig("ours", retry_max_times=3, retry_queue_nums=2))
    )
    found = rocketmq.ask("readConfig", folder=str(store_folder))["groups"]
    assert {group: found[group] for group in theirs} == theirs
    assert found.keys() - theirs.keys() == {"ours"}
    assert (found["ours"]["retryMaxTimes"], found["ours"]["retryQueueNums"]) == (3, 2)
