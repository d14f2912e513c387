"""H04: a slave has its master's progress, so a promotion reads the newest part of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.services.slave.progress_files import FROM_THE_BEGIN, begin_progress
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES
from rocketpy_proto.remoting.headers.cluster import ProgressFileRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.replication.pair import MASTER, Pair, pair, slave_config
from tests.broker.replication.promotion.test_h04_batches import ALONE
from tests.support.broker.clients.batch_writer import Job, bodies
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient
from tests.support.broker.running_broker import RunningBroker, StartBroker

NAMES = ("deliveryLog.json", "transactionLog.json", "batchLedger.journal", "timercheck")


def config_of(running: RunningBroker) -> Path:
    return running.broker.store.config.folder / "config"


def contents(running: RunningBroker) -> dict[str, bytes]:
    folder = config_of(running)
    return {name: (folder / name).read_bytes() for name in NAMES if (folder / name).exists()}


async def until_same(both: Pair) -> None:
    await both.until(lambda: contents(both.slave) == contents(both.master))


async def test_h04_a_promotion_reads_the_log_from_the_masters_progress_on(
    start_broker: StartBroker,
) -> None:
    # A second start of the master: its progress is at the end of what it had then.
    async with start_broker(folder="master") as running:
        await running.create_topic("T", queues=1)
        for number in range(3):
            job = Job(running, batch_id=number)
            await job.stage((0, [b"%d" % number]))
            assert (await job.commit()).outcome == broker_pb2.COMMITTED
    async with pair(start_broker, MASTER) as both:
        end = both.master.broker.store.positions().log_end
        await until_same(both)
        assert {*contents(both.slave)} >= {*NAMES[:3]}
        answer = await both.slave.admin.Promote(admin_pb2.PromoteRequest(force=True))
        assert answer.status.code == 0
    async with start_broker(folder="slave", replication=ALONE) as promoted:
        services = promoted.broker.services
        assert services.delay.progress._marked == end
        assert services.batches.commits._ledger.last_batch(job.writer_id) == 2
        job.running = promoted
        assert (await job.commit()).outcome == broker_pb2.COMMITTED
        assert await bodies(promoted) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("deliveryLog.json", b'{"logOffset": 99999999}', "of a log that ends at"),
        ("deliveryLog.json", b'{"logOffset": -1}', "of a log that ends at"),
        ("deliveryLog.json", b'{"logOffset": 0, "timer": 3}', "cannot be read"),
        ("deliveryLog.json", b"{", "cannot be read"),
        ("transactionLog.json", b'{"logOffset": "x"}', "cannot be read"),
        ("batchLedger.journal", b"no line\n", "no line of the ledger can be read"),
        ("timercheck", b"x", "its timercheck has 1 bytes"),
    ],
)
async def test_h04_progress_that_no_broker_has_written_is_not_taken(
    start_broker: StartBroker,
    name: str,
    content: bytes,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with start_broker(replication=MASTER, remoting_port=0, folder="master") as master:
        path, config = config_of(master) / name, slave_config(master)
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        async with start_broker(replication=config, clock=master.clock, folder="slave") as slave:
            both = Pair(master, slave)
            await both.until(lambda: reason in caplog.text)
            assert contents(slave).get(name) != content
        path.unlink() if before is None else path.write_bytes(before)
    # The slave starts again with what it has.
    async with start_broker(replication=config, folder="slave"):
        pass


async def asked(client: RemotingClient, name: str, version: str = "") -> tuple[str, bytes]:
    answer = await client.ask(Code.GET_PROGRESS_FILE, ProgressFileRequest(name, version))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    header = EXCHANGES[Code.GET_PROGRESS_FILE].response.decode(answer.ext_fields)
    return header.version, bytes(answer.body)


async def test_h04_a_master_gives_its_progress_files_alone(start_broker: StartBroker) -> None:
    async with (
        start_broker(remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        client, path = remoting.client, config_of(running) / "deliveryLog.json"
        version, content = await asked(client, path.name)
        assert content == path.read_bytes()
        assert await asked(client, path.name, version) == (version, b"")
        assert await asked(client, "timercheck") == ("", b"")
        for name in ("users.json", "../config/deliveryLog.json", ""):
            answer = await client.ask(Code.GET_PROGRESS_FILE, ProgressFileRequest(name))
            assert answer.code == ResponseCode.INVALID_PARAMETER


def test_h04_a_store_that_was_a_masters_keeps_its_progress(tmp_path: Path) -> None:
    begin_progress(tmp_path)
    path = tmp_path / "deliveryLog.json"
    assert path.read_bytes() == FROM_THE_BEGIN
    path.write_bytes(b"own")
    begin_progress(tmp_path)
    assert path.read_bytes() == b"own"
