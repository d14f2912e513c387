"""H04: a slave becomes the master; it goes on with what it had, and with what waits."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.client import brokers
from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.slave.progress_files import reset_progress
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record.properties import DELAY, TIMER_DELIVER_MS
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2
from tests.broker.replication.pair import MASTER, pair
from tests.broker.replication.test_h01_alignment import align
from tests.support.blocks import WireBlock, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.running_broker import until as until_so
from tests.support.broker.shell import run
from tests.support.time_limits import WAIT_SECONDS_MAX


def until(is_so: Callable[[], bool]) -> None:
    """Waits until `is_so`; a broker that starts again answers with an error meanwhile."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < end:
        try:
            if is_so():
                return
        except BrokerError:
            pass
        time.sleep(0.05)
    raise AssertionError("not so in time")


def bodies(broker: LocalBroker, topic: str) -> list[bytes]:
    return [bytes(each.body) for each in broker.messages(topic)]


def status(broker: LocalBroker) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(broker, "broker", "status", "--json").stdout)
    return found


def until_copied(slave: LocalBroker, master: LocalBroker) -> None:
    """Waits until a slave has all that its master has in its log now."""
    end = status(master)["logEndOffset"]
    until(lambda: status(slave)["logEndOffset"] >= end)


@pytest.fixture
def master(tmp_path: Path) -> LocalBroker:
    return LocalBroker(tmp_path / "a", ha_port=0, message_delay_level="1s 2s")


def slave_of(master: LocalBroker, tmp_path: Path) -> LocalBroker:
    return LocalBroker(
        tmp_path / "b",
        broker_role="SLAVE",
        master=master.remoting_endpoint,
        message_delay_level="1s 2s",
    )


def test_h04_a_promoted_slave_takes_messages_and_delivers_what_waits(
    master: LocalBroker, tmp_path: Path
) -> None:
    with master, slave_of(master, tmp_path) as slave:
        master.create_topic("T", queues=1)
        sent = [b"%d" % number for number in range(20)]
        master.send("T", sent)
        master.send("T", b"delayed", delay_level=2)
        assert [bytes(each.body) for each in master.pull("T", "readers", count=5)] == sent[:5]
        until(lambda: bodies(slave, "T")[:20] == sent)
        refused = run(slave, "broker", "promote")
        assert refused.exit_code != 0
        assert "serves this slave" in refused.output
        until(lambda: run(slave, "group", "describe", "readers").exit_code == 0)
        # The delayed message was the last one.
        until_copied(slave, master)
        master.kill()
        done = run(slave, "broker", "promote", "--force", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["epoch"] == 1
        slave.send("T", b"new")
        until(lambda: sorted(bodies(slave, "T")) == sorted([*sent, b"delayed", b"new"]))
        assert status(slave)["brokerRole"] == "ASYNC_MASTER"
        # A restart with the slave's options stays a master.
        slave.restart()
        slave.send("T", b"more")
        assert "was promoted" in slave.log_text()


def test_h04_the_old_master_comes_back_as_a_slave(master: LocalBroker, tmp_path: Path) -> None:
    with master, slave_of(master, tmp_path) as slave:
        master.create_topic("T", queues=1)
        master.send("T", b"common")
        until(lambda: bodies(slave, "T") == [b"common"])
        slave.stop()
        master.send("T", [b"lost"] * 3)
        master.stop()
        slave.start()
        assert run(slave, "broker", "promote", "--force").exit_code == 0
        slave.send("T", b"new")
        slave.stop()
    # The promoted one gets a port for slaves, and the old one becomes its slave.
    with LocalBroker(tmp_path / "b", ha_port=0) as new:
        words = ["--master", new.remoting_endpoint]
        done = CliRunner().invoke(app, ["store", "align", str(tmp_path / "a"), *words, "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["removed"] == {"T": 3}
        with LocalBroker(tmp_path / "a", broker_role="SLAVE", master=new.remoting_endpoint) as old:
            until(lambda: bodies(old, "T") == [b"common", b"new"])


def test_h04_messages_that_a_master_has_delivered_are_not_delivered_again(
    master: LocalBroker, tmp_path: Path
) -> None:
    with master, slave_of(master, tmp_path) as slave:
        master.create_topic("T", queues=1)
        due = datetime.now(timezone.utc) + timedelta(seconds=2)
        sent = [b"timer", b"level", b"now"]
        master.send("T", b"timer", deliver_at=due)
        master.send("T", b"level", delay_level=1)
        master.send("T", b"now")
        until(lambda: sorted(bodies(slave, "T")) == sorted(sent))
        master.kill()
        assert run(slave, "broker", "promote", "--force").exit_code == 0
        slave.send("T", b"late", delay_level=1)
        until(lambda: b"late" in bodies(slave, "T"))
        assert sorted(bodies(slave, "T")) == sorted([*sent, b"late"])


class StaysSlave(admin_pb2_grpc.AdminServicer):
    """A broker that is promoted, and does not get ready as a master."""

    def Promote(  # noqa: N802 (a name of the contract)
        self, *_: object
    ) -> admin_pb2.PromoteResponse:
        return admin_pb2.PromoteResponse(epoch=1)

    def GetBrokerStatus(  # noqa: N802 (a name of the contract)
        self, *_: object
    ) -> admin_pb2.GetBrokerStatusResponse:
        return admin_pb2.GetBrokerStatusResponse(broker_role="SLAVE")


def test_h04_a_promoted_slave_that_does_not_serve_in_time_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_ms = itertools.count(0, brokers.MASTER_SECONDS_MAX * 1_000 / 2)
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda _: next(times_ms))
    server = grpc.server(ThreadPoolExecutor())
    admin_pb2_grpc.add_AdminServicer_to_server(StaysSlave(), server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    words = ["broker", "promote", "--json", "--endpoint", endpoint]
    done = CliRunner().invoke(app, words)
    server.stop(None).wait()
    assert (done.exit_code, json.loads(done.stdout)["epoch"]) == (1, 1)
    assert "is promoted, but does not serve as the master yet" in done.stderr


def test_h04_progress_of_an_earlier_master_is_forgotten(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    for name in ("transactionLog.json", "batchLedger.journal", "timercheck", "deliveryLog.json"):
        (config / name).write_text("old")
        (config / f"{name}.bak").write_text("older")
    reset_progress(config)
    assert {path.name: path.read_text() for path in config.iterdir()} == {
        "deliveryLog.json": '{"logOffset": 0}'
    }


async def test_h04_a_promoted_store_is_not_cut_to_the_old_masters(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("T", queues=1)
        await both.master.append("T", 0, b"one")
        await both.synced()
        request = admin_pb2.PromoteRequest(force=True)
        assert (await both.slave.admin.Promote(request)).status.code == 0
    config = Replication(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:1")
    async with start_broker(folder="slave", replication=config) as promoted:
        assert (await promoted.append("T", 0, b"acknowledged")).status.code == 0
    async with start_broker(folder="master", replication=MASTER, remoting_port=0) as old:
        code, text = await align(tmp_path / "slave", old)
        assert (code, "the master has come back" in text) == (1, True), text


async def test_h04_a_topic_that_the_master_created_last_is_created_again(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("deleted", queues=2)
        await both.master.append("deleted", 0, b"x")
        await both.same()
        await both.synced()
        deletion = admin_pb2.DeleteTopicRequest(topic="deleted")
        assert (await both.master.admin.DeleteTopic(deletion)).status.code == 0
        await both.synced()
        # The tables are not copied while the clock stands.
        await both.master.create_topic("T", queues=3)
        await both.master.append("T", 1, b"acknowledged")
        end = both.master.broker.store.positions().log_end
        store = both.slave.broker.store
        await until_so(lambda: store.positions().dispatched_end >= end)
        assert not both.slave.broker.services.topics.exists("T")
        request = admin_pb2.PromoteRequest(force=True)
        assert (await both.slave.admin.Promote(request)).status.code == 0
        assert "1 topic is created" in caplog.text
    config = Replication(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:1")
    async with start_broker(folder="slave", replication=config) as promoted:
        assert promoted.broker.services.topics.get("T").read_queue_nums == 2
        assert not promoted.broker.services.topics.exists("deleted")
        assert (await promoted.append("T", 1, b"another")).status.code == 0


async def test_h04_a_topic_created_last_is_created_again_for_a_message_that_waits(
    start_broker: StartBroker,
) -> None:
    def waiting(topic: str, name: str, value: int) -> WireBlock:
        return wire_block(topic, [b"later"], properties={name: [str(value)]})

    async with pair(start_broker) as both:
        await both.master.create_topic("deleted", queues=1)
        await both.master.append_block("deleted", 0, waiting("deleted", DELAY, 18))
        await both.same()
        await both.synced()
        deletion = admin_pb2.DeleteTopicRequest(topic="deleted")
        assert (await both.master.admin.DeleteTopic(deletion)).status.code == 0
        await both.synced()
        # The tables are not copied while the clock stands.
        for topic in ("T", "U"):
            await both.master.create_topic(topic, queues=3)
        later_ms = both.master.clock.now_ms() + 600_000
        delayed = {"T": waiting("T", DELAY, 1), "U": waiting("U", TIMER_DELIVER_MS, later_ms)}
        for topic, block in delayed.items():
            assert (await both.master.append_block(topic, 2, block)).is_delayed
        end = both.master.broker.store.positions().log_end
        store = both.slave.broker.store
        await until_so(lambda: store.positions().dispatched_end >= end)
        request = admin_pb2.PromoteRequest(force=True)
        assert (await both.slave.admin.Promote(request)).status.code == 0
    config = Replication(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:1")
    async with start_broker(folder="slave", replication=config) as promoted:
        topics = promoted.broker.services.topics
        assert [topics.get(topic).read_queue_nums for topic in ("T", "U")] == [3, 3]
        assert not topics.exists("deleted")
        promoted.clock.advance(2_000)
        await until_so(lambda: promoted.broker.store.range_of(QueueKey("T", 2)).max_offset == 1)


async def recovery_of(running: RunningBroker, known: str = "") -> broker_pb2.QueryOffsetsResponse:
    request = broker_pb2.QueryOffsetsRequest(topics=["T"], recovery_id=known)
    answer: broker_pb2.QueryOffsetsResponse = await running.data.QueryOffsets(request)
    return answer


async def test_h04_a_promotion_is_a_recovery_for_those_that_have_read_more(
    start_broker: StartBroker,
) -> None:
    async with pair(start_broker) as both:
        await both.master.create_topic("T", queues=1)
        await both.master.append("T", 0, b"one")
        await both.synced()
        known = (await recovery_of(both.master)).recovery_id
        assert (await recovery_of(both.slave)).recovery_id == known
        request = admin_pb2.PromoteRequest(force=True)
        assert (await both.slave.admin.Promote(request)).status.code == 0
        # The old master goes on for a while.
        await both.master.append("T", 0, b"beyond")
    config = Replication(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:1")
    async with start_broker(folder="slave", replication=config) as promoted:
        await promoted.append("T", 0, b"another")
        answer = await recovery_of(promoted, known)
        assert answer.recovery_id != known
        assert [each.cut_offset for topic in answer.topics for each in topic.queues] == [1]


async def test_h04_a_master_is_not_promoted(start_broker: StartBroker) -> None:
    async with pair(start_broker) as both:
        answer = await both.master.admin.Promote(admin_pb2.PromoteRequest())
        assert "is a master already" in answer.status.remark
