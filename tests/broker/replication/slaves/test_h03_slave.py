"""H01, H03: a slave of this project follows its master, serves readers, and refuses senders."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.services.slave.errors import MasterRefusedError
from rocketpy_broker.services.slave.master import MasterFacts, check_state, log_range_of
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting.bodies.configs import ReplicationState
from tests.broker.replication.pair import MASTER, pair, slave_config, state_of, until
from tests.support.blocks import bodies_of
from tests.support.broker.running_broker import RunningBroker, StartBroker

SEGMENT = 64 << 10


async def bodies(running: RunningBroker, topic: str, queue_id: int = 0) -> list[bytes]:
    """Returns the bodies of a queue, as a client reads them."""
    limits = {"offset_end": 1 << 40, "response_bytes_max": 1 << 20}
    answers = await running.pull(topic=topic, queue_id=queue_id, offset=0, **limits)
    return [body for each in answers for body in bodies_of(each.records, each.record_sizes)]


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_h01_h03_a_slave_copies_its_master_and_serves_readers(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with pair(start_broker, flush=flush) as both:
        await both.master.create_topic("T", queues=2)
        for number in range(20):
            await both.master.append("T", number % 2, b"%d" % number)
        await both.same()
        await both.synced()
        assert await bodies(both.slave, "T", 1) == [b"%d" % n for n in range(1, 20, 2)]
        entry = both.slave.broker.services.topics.copy()["T"]
        assert entry == both.master.broker.services.topics.copy()["T"]
        assert entry.epoch != 0
        assert both.slave.broker.store.store_id == both.master.broker.store.store_id


async def test_h03_a_slave_refuses_senders_by_name(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("T")
        await both.synced()
        answer = await both.slave.append("T", 0, b"x")
        assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "this broker is a slave: send to its master 127.0.0.1:" in answer.status.remark


async def test_h01_an_empty_slave_gets_all_segments(start_broker: StartBroker) -> None:
    async with pair(start_broker, commit_log_segment_bytes=SEGMENT) as both:
        await both.master.create_topic("T")
        for _ in range(300):
            await both.master.append("T", 0, b"x" * 1_000)
        assert both.master.broker.store.positions().log_end > 4 * SEGMENT
        await both.same()
        assert both.slave.broker.store.positions().log_begin == 0
        queue = QueueKey("T", 0)
        assert both.slave.broker.store.range_of(queue) == both.master.broker.store.range_of(queue)


async def test_h01_a_log_that_ends_with_its_segment_is_flushed_to_its_end(
    start_broker: StartBroker,
) -> None:
    flush = FlushDiskType.SYNC_FLUSH
    async with pair(start_broker, flush=flush, commit_log_segment_bytes=SEGMENT) as both:
        await both.master.create_topic("T")
        await both.master.append("T", 0, bytes(40_000))
        # The place of a message that could not be written.
        assert both.master.broker.store._log.prepare(40_000, 1).base == SEGMENT
        await both.master.broker.services.flush.group_commit.flush()
        await both.same()
        await both.synced()
        slave = both.slave.broker.store.positions()
        assert slave.log_end == slave.flushed_end == SEGMENT


async def test_h02_a_sync_master_waits_for_the_slave(start_broker: StartBroker) -> None:
    config = Replication(BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=2)
    async with pair(start_broker, config, FlushDiskType.SYNC_FLUSH) as both:
        await both.master.create_topic("T")
        await both.synced()
        for number in range(10):
            answer = await both.master.append("T", 0, b"%d" % number)
            assert answer.status.code == ResponseCode.SUCCESS
            end = both.master.broker.store.positions().log_end
            assert both.slave.broker.store.flushed_end >= end
        slaves = both.master.broker.services.replication.slaves
        assert slaves.lag_bytes == 0


async def test_h03_offsets_groups_and_deletions_follow(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        master, slave = both.master.broker.services, both.slave.broker.services
        for topic in ("T", "U"):
            await both.master.create_topic(topic)
            await both.master.append(topic, 0, b"one", b"two")
        master.groups.configs.get_or_create("readers")
        master.offsets.committed.commit("readers", "T", 0, 1)
        await both.synced()
        assert slave.offsets.committed.query("readers", "T", 0) == 1
        assert "readers" in slave.groups.configs
        await master.admin.admin.delete_topic("T")
        await both.synced()
        assert "T" not in slave.topics
        assert both.slave.broker.store.range_of(QueueKey("T", 0)).max_offset == 0
        await both.master.create_topic("T")
        await both.master.append("T", 1, b"again")
        await both.same()
        await both.synced()
        assert await bodies(both.slave, "T", 0) == []
        assert await bodies(both.slave, "T", 1) == [b"again"]
        assert await bodies(both.slave, "U", 0) == [b"one", b"two"]


async def test_h01_a_slave_of_another_store_is_refused_by_name(
    start_broker: StartBroker,
) -> None:
    async with start_broker(folder="slave") as alone:
        await alone.create_topic("T")
        await alone.append("T", 0, b"of another store")
    async with pair(start_broker) as both:
        await both.until(lambda: "it has store" in both.state.failure)
        assert not both.state.is_connected
        assert both.slave.broker.store.range_of(QueueKey("T", 0)).max_offset == 1


async def test_h01_a_slave_finds_its_master_again(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("T")
        await both.master.append("T", 0, b"one")
        await both.same()
        assert both.master.broker.ha is not None
        for connection in [*both.master.broker.ha._connections]:
            connection.close("")
        await both.until(lambda: not both.state.is_connected)
        await both.master.append("T", 0, b"two")
        await both.same()
        await both.synced()
        assert await bodies(both.slave, "T") == [b"one", b"two"]


async def test_h03_offsets_of_a_recreated_topic_are_the_masters(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        master, slave = both.master.broker.services, both.slave.broker.services
        await both.master.create_topic("T")
        await both.master.append("T", 0, b"one", b"two")
        master.groups.configs.get_or_create("readers")
        master.offsets.committed.commit("readers", "T", 0, 2)
        await both.synced()
        assert slave.offsets.committed.query("readers", "T", 0) == 2
        await master.admin.admin.delete_topic("T")
        await both.master.create_topic("T")
        await both.master.append("T", 0, b"again")
        await both.same()
        await both.synced()
        assert slave.offsets.committed.query("readers", "T", 0) == -1


async def test_h01_logs_that_differ_before_one_large_body_are_told_apart(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("T", queues=2)
        await both.master.append("T", 0, b"common")
        await both.same()
        await both.synced()
    await asyncio.to_thread(shutil.copytree, tmp_path / "master", tmp_path / "earlier")
    async with pair(start_broker) as both:
        await both.master.append("T", 0, b"AAAA")
        await both.master.append("T", 0, b"z" * 100_000)
        await both.same()
    async with start_broker(folder="earlier", replication=MASTER, remoting_port=0) as master:
        master.clock.advance(60_000)
        for body in (b"BBBB", b"z" * 100_000, b"after"):
            await master.append("T", 1, body)
        replication = slave_config(master)
        async with start_broker(
            folder="slave", replication=replication, clock=master.clock, remoting_port=0
        ) as slave:
            words = "logs of master and slave differ"
            await until(master.clock, lambda: words in state_of(slave).failure)


@pytest.mark.parametrize(
    "change",
    [
        {"commitLogMinOffset": str(1 << 70), "commitLogMaxOffset": str(1 << 71)},
        {"commitLogMinOffset": "1" * 5_000},
        {"commitLogMaxOffset": "-1"},
        {"commitLogMinOffset": "-1"},
    ],
)
def test_h01_a_master_whose_log_has_no_range_is_refused(change: dict[str, str]) -> None:
    usual = {"commitLogMinOffset": "0", "commitLogMaxOffset": "5"}
    with pytest.raises(MasterRefusedError, match="which is no range"):
        log_range_of({**usual, **change})


def test_h01_a_master_of_rocketmq_has_an_empty_log_before_its_first_message() -> None:
    assert log_range_of({"commitLogMinOffset": "-1", "commitLogMaxOffset": "0"}) == (0, 0)


@pytest.mark.parametrize("port", ["0", "99999", "9" * 5_000, "x", ""])
def test_h01_a_master_without_a_port_for_slaves_is_refused(port: str) -> None:
    facts = MasterFacts({"haListenPort": port}, 0, 0, None)
    with pytest.raises(MasterRefusedError):
        assert facts.ha_port


@pytest.mark.parametrize(
    "state",
    [
        {"store_id": ""},
        {"store_id": "ab\ncd" * 4},
        {"recoveries": (("x y\n", 1),)},
        {"recoveries": (("0" * 16, -1),)},
        {"recoveries": (("0" * 16, 1),) * 65},
        {"deleted_below": {"T": -1}},
        {"epochs": {"T": -5}},
        {"epoch": -1},
    ],
)
def test_h01_a_master_with_an_illegal_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(MasterRefusedError, match="illegal"):
        check_state(ReplicationState(**{"store_id": "ab" * 16, **state}))
