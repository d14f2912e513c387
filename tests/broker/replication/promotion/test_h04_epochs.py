"""H04: a promoted store and masters without epochs, as RocketMQ's are; their logs decide."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.server.remoting.connection import unsupported
from rocketpy_broker.store.files.promotion import SLAVE, PromotionFile
from rocketpy_proto.model.codes import RequestCode
from rocketpy_proto.remoting import RemotingCommand
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.replication.pair import MASTER, pair, slave_config, state_of, until
from tests.broker.replication.slave import log_of
from tests.broker.replication.test_h01_alignment import align
from tests.support.blocks import bodies_of
from tests.support.broker.clients.remoting_relay import relayed
from tests.support.broker.running_broker import RunningBroker, StartBroker

PROMOTED = Replication(BrokerRole.SLAVE, 1, "127.0.0.1:1", 0)


def as_rocketmqs(master: RunningBroker) -> AbstractAsyncContextManager[RunningBroker]:
    """Yields the master; it refuses the request that RocketMQ's masters do not know."""

    def answer(request: RemotingCommand) -> RemotingCommand | None:
        is_unknown = request.code == RequestCode.GET_REPLICATION_STATE
        return unsupported(request) if is_unknown else None

    return relayed(master, answer)


async def promoted(start_broker: StartBroker) -> None:
    """Leaves a slave that was promoted, and has a message since then."""
    async with pair(start_broker) as both:
        await both.master.create_topic("T", queues=1)
        await both.master.append("T", 0, b"one")
        await both.synced()
        answer = await both.slave.admin.Promote(admin_pb2.PromoteRequest(force=True))
        assert answer.epoch == 1
    async with start_broker(folder="slave", replication=PROMOTED) as master:
        await master.append("T", 0, b"two")


async def test_h04_a_promoted_store_becomes_the_slave_of_a_master_of_rocketmq(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    await promoted(start_broker)
    shutil.copytree(tmp_path / "slave", tmp_path / "theirs")
    async with (
        start_broker(folder="theirs", replication=MASTER, remoting_port=0) as started,
        as_rocketmqs(started) as theirs,
    ):
        await theirs.append("T", 0, b"three")
        code, text = await align(tmp_path / "slave", theirs, "--json")
        assert (code, json.loads(text)["removed"]) == (0, {}), text
        async with start_broker(
            folder="slave", replication=slave_config(theirs), clock=theirs.clock, remoting_port=0
        ) as slave:
            await until(slave.clock, lambda: state_of(slave).is_connected)
            end = theirs.broker.store.positions().log_end
            await until(slave.clock, lambda: slave.broker.store.positions().log_end >= end)
            assert log_of(slave) == log_of(theirs)
            # The epoch is not forgotten: the next one is higher.
            known = PromotionFile(tmp_path / "slave").load()
            assert known is not None
            assert (known.role, known.epoch) == (SLAVE, 1)
            answer = await slave.admin.Promote(admin_pb2.PromoteRequest(force=True))
            assert answer.epoch == 2


async def test_h04_no_alignment_removes_all_messages_since_the_promotion(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    await promoted(start_broker)
    async with (
        start_broker(folder="master", replication=MASTER, remoting_port=0) as started,
        as_rocketmqs(started) as old,
    ):
        for dry in ((), ("--dry-run",)):
            code, text = await align(tmp_path / "slave", old, *dry)
            assert (code, "since its promotion of epoch 1" in text) == (1, True), text
    async with start_broker(folder="slave", replication=PROMOTED) as kept:
        (answer,) = await kept.pull(
            topic="T", queue_id=0, offset=0, offset_end=9, response_bytes_max=1 << 20
        )
        assert bodies_of(answer.records, answer.record_sizes) == [b"one", b"two"]
