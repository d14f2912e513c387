"""The JSON files below `config/`, between our managers and those of RocketMQ's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.clock import SystemClock
from rocketpy_broker.services.consumer_offsets import ConsumerOffsetManager
from rocketpy_broker.services.topics import Perm, TopicConfig, TopicConfigManager
from tests.interop.rocketmq import RocketMQStore

CLUSTER, BROKER = "DefaultCluster", "broker-a"


@pytest.fixture
def rocketmq(tmp_path: Path) -> Iterator[RocketMQStore]:
    """RocketMQ's managers, in a process without a store."""
    with RocketMQStore(tmp_path / "rocketmq.log", tmp_path) as process:
        yield process


def our_topics(folder: Path) -> TopicConfigManager:
    """Our table of topics over a store's folder."""
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
    fifo = TopicConfig("Fifo", 3, 2, int(Perm.READ), {"message.type": "FIFO"})
    for config in (plain, fifo):
        topics.update(config, create_only=True)
    found = rocketmq.ask("readConfig", folder=str(store_folder))["topics"]
    for config in topics.list(include_system=True):
        assert found[config.topic] == config.to_json()
    assert {"Plain", "Fifo"} <= found.keys()


def test_b05_rocketmq_reads_our_consumer_offsets(
    rocketmq: RocketMQStore, store_folder: Path
) -> None:
    offsets = ConsumerOffsetManager(store_folder / "config", SystemClock())
    offsets.commit("g1", "TopicA", 0, 250)
    offsets.commit("g1", "TopicA", 11, 1 << 40)
    offsets.commit("g1", "%RETRY%g1", 0, 3)
    offsets.persist()
    found = rocketmq.ask("readConfig", folder=str(store_folder))["offsets"]
    assert found == {"TopicA@g1": {"0": 250, "11": 1 << 40}, "%RETRY%g1@g1": {"0": 3}}


def test_b05_we_read_rocketmqs_topics(rocketmq: RocketMQStore, store_folder: Path) -> None:
    plain = TopicConfig("Plain", 4, 4)
    fifo = TopicConfig("Fifo", 3, 2, int(Perm.READ), {"message.type": "FIFO"})
    rocketmq.ask(
        "writeConfig",
        folder=str(store_folder),
        topics=[plain.to_json(), fifo.to_json()],
        groups=["g1"],
        commits=[],
    )
    topics = our_topics(store_folder)
    assert topics.get("Plain") == plain
    assert topics.get("Fifo") == fifo
    theirs = rocketmq.ask("readConfig", folder=str(store_folder))["topics"]
    assert {topic: TopicConfig.from_json(topic, entry) for topic, entry in theirs.items()} == {
        config.topic: config for config in topics.list(include_system=True)
    }
