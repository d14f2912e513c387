"""A directory of ours, served by a whole RocketMQ broker and then opened by us again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import StoreCheck
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.configs import TopicConfig
from tests.interop.cluster.servers import BROKER_PORTS, free_port
from tests.interop.rocketmq import RocketMQStore
from tests.interop.stores import MakeStores, Stores, messages

A0 = QueueKey("TopicA", 0)
B3 = QueueKey("TopicB", 3)


def test_f14_a_rocketmq_broker_serves_our_directory_and_hands_it_back(
    new_stores: MakeStores,
) -> None:
    stores = new_stores(segment_bytes=1 << 30, queue_file_bytes=6_000_000)
    store = stores.open_ours()
    stores.append_ours(store, A0, messages(20))
    stores.append_ours(store, B3, messages(5))
    store.close()
    config = stores.folder / "config"
    topics = TopicConfigManager(config, SystemClock(), "DefaultCluster", "broker-a")
    topics.load()
    for topic in (TopicConfig("TopicA", 4, 4), TopicConfig("TopicB", 8, 4)):
        asyncio.run(topics.update(topic, create_only=True))
    offsets = ConsumerOffsetManager(config, SystemClock())
    offsets.commit("g1", "TopicA", 0, 7)
    save_now(offsets)
    found = served_by_rocketmq(stores)
    unknown = of_rocketmq_alone(stores.folder)
    assert {"rocksdbstore", "transactionMetrics"} <= {
        part for path in unknown for part in path.relative_to(stores.folder).parts
    }
    findings = list(StoreCheck(stores.folder, StoreSizes.of(stores.folder)).run())
    assert [one.text for one in findings] == [
        "records are checked by their body's CRC only: another broker wrote them"
    ]
    assert found["offsets"] == {"TopicA@g1": {"0": 7}}
    for name in ("TopicA", "TopicB"):
        assert found["topics"][name] == topics.copy()[name].to_json()
    again = TopicConfigManager(config, SystemClock(), "DefaultCluster", "broker-a")
    again.load()
    for name in ("TopicA", "TopicB"):
        assert again.copy()[name].to_json() == topics.copy()[name].to_json()
    opened_by_us(stores)
    assert of_rocketmq_alone(stores.folder) == unknown
    assert list(StoreCheck(stores.folder, StoreSizes.of(stores.folder)).run()) == []
    assert not stores.check_both_read_the_same().abnormal


def served_by_rocketmq(stores: Stores) -> dict[str, Any]:
    """Serves the directory with RocketMQ's broker; returns the resulting configuration."""
    with RocketMQStore(stores.scratch / "rocketmq.log", stores.scratch) as theirs:
        theirs.ask("startBroker", folder=str(stores.folder), port=free_port(BROKER_PORTS))
        stores.check_rocketmq(theirs)
        stores.put_rocketmq(theirs, A0, messages(9, "broker"))
        stores.check_rocketmq(theirs)
        theirs.ask("stopBroker")
        theirs.end()
        return stores.ask_config()


def opened_by_us(stores: Stores) -> None:
    """Opens the directory with our store, checks its content, and closes it."""
    store = stores.ours()
    assert not store.open().abnormal
    stores.check_ours(store)
    store.close()


def of_rocketmq_alone(folder: Path) -> dict[Path, bytes]:
    """Returns the content of the files in a store's directory that our store does not know."""
    known = {"commitlog", "consumequeue", "index", "rocketpy", "timerlog"}
    known |= {"checkpoint", "lock", "abort", "topics.json", "consumerOffset.json"}
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path: path.read_bytes()
        for path in paths
        if known.isdisjoint(part.removesuffix(".bak") for part in path.relative_to(folder).parts)
    }
