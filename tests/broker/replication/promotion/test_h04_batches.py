"""H04: exactly-once batches of a pair, over a promotion in the middle of each step."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from rocketpy_broker.config import BrokerRole, Replication
from rocketpy_broker.services.batches.service import RETRY_MS, SWEEP_MS, UNCOPIED
from rocketpy_broker.services.batches.staged_files import SILENT_MS_MAX, FileChange, StagedFiles
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES, decode_body
from rocketpy_proto.remoting.bodies.configs import StagedFileChange, StagedFileChanges
from rocketpy_proto.remoting.headers.cluster import (
    StagedFileRequest,
    StagedFilesRequest,
    StagedFilesResponse,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.batches.conftest import RoomFor
from tests.broker.replication.pair import MASTER, Pair, pair, slave_config
from tests.broker.replication.pair import until as until_later
from tests.broker.replication.slave import Slave, slave_of
from tests.support.broker.clients.batch_writer import (
    SMALL_SEGMENT_BYTES,
    Job,
    bodies,
    hindered,
    staging_files,
    wide,
)
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import COMMIT, end, prepare

SYNC = Replication(BrokerRole.SYNC_MASTER, port=0)
TWO = Replication(BrokerRole.SYNC_MASTER, port=0, in_sync_replicas=2)
ALONE = Replication(role=BrokerRole.SLAVE, broker_id=1, master="127.0.0.1:1")
A, B, C = (wide(bytes([letter])) for letter in b"abc")


@pytest.fixture
def start_broker(start_broker: StartBroker) -> StartBroker:
    """Returns a function that starts brokers which append each wide message by itself."""
    return partial(start_broker, commit_log_segment_bytes=SMALL_SEGMENT_BYTES)


async def staged(both: Pair) -> Job:
    """Returns a job with two staged tasks, of which the slave has copies."""
    await both.master.create_topic("T", queues=1)
    await both.synced()
    job = Job(both.master)
    await job.stage((0, [A, B]))
    await job.stage((0, [C]))
    await copied(both)
    return job


async def copied(both: Pair) -> None:
    """Waits until the slave has reported that it has the master's staging files."""
    files, names = both.master.broker.services.batches.files, staging_files(both.master)
    await both.until(lambda: [each.position for each in files._copiers.values()] == [files._end])
    await both.until(lambda: has_copies(files))
    await both.until(lambda: staging_files(both.slave) == names)


def has_copies(files: StagedFiles) -> bool:
    """Returns True if as many slaves as are needed have all files."""
    return bool(files._copiers) and files._are_copied(set(files._present), files._end)


async def promote(running: RunningBroker) -> None:
    answer = await running.admin.Promote(admin_pb2.PromoteRequest(force=True))
    assert answer.status.code == 0, answer.status.remark


async def test_h04_a_decided_batch_is_completed_by_the_promoted_slave(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    async with pair(start_broker, TWO) as both:
        job = await staged(both)
        room_for(2)
        await hindered(job)
        await both.same()
        assert await bodies(both.slave) == [A]
        await promote(both.slave)
    room_for(None)
    async with start_broker(folder="slave", replication=ALONE) as promoted:
        job.running = promoted
        answer = await job.query()
        assert (answer.outcome, answer.record_count) == (broker_pb2.COMMITTED, 3)
        assert await bodies(promoted) == [A, B, C]
        again = await job.commit()
        assert (again.outcome, await bodies(promoted)) == (answer.outcome, [A, B, C])
        await until_later(promoted.clock, lambda: not staging_files(promoted))


async def test_h04_what_an_async_master_has_decided_is_lost_by_name(
    start_broker: StartBroker, room_for: RoomFor
) -> None:
    async with pair(start_broker, MASTER) as both:
        await both.master.create_topic("T", queues=1)
        await both.synced()
        job = Job(both.master)
        await job.stage((0, [A, B, C]))
        room_for(2)
        await hindered(job)
        await both.same()
        await promote(both.slave)
    room_for(None)
    async with start_broker(folder="slave", replication=ALONE) as promoted:
        job.running = promoted
        answer = await job.query()
        assert (answer.outcome, answer.record_count) == (broker_pb2.INCOMPLETE, 1)
        assert f"writer '{job.writer_id}' shows 1 of its 3 messages" in answer.hindrance
        assert await bodies(promoted) == [A]


async def test_h04_staged_blocks_can_be_committed_at_the_promoted_slave(
    start_broker: StartBroker,
) -> None:
    async with pair(start_broker, SYNC) as both:
        job = await staged(both)
        await promote(both.slave)
    async with start_broker(folder="slave", replication=ALONE) as promoted:
        job.running = promoted
        assert (await job.commit()).outcome == broker_pb2.COMMITTED
        assert await bodies(promoted) == [A, B, C]


async def test_h04_copies_go_when_the_slave_has_the_messages(start_broker: StartBroker) -> None:
    async with pair(start_broker, TWO) as both:
        job = await staged(both)
        assert (await job.commit()).outcome == broker_pb2.COMMITTED
        await both.until(lambda: not staging_files(both.slave))
        assert not staging_files(both.master)
        await both.same()
        # An aborted job leaves nothing either.
        job = Job(both.master, batch_id=1)
        await job.stage((0, [b"x"]))
        await copied(both)
        assert await job.abort() == 1
        await both.until(lambda: not staging_files(both.slave))


async def test_h04_a_slave_keeps_whole_copies_over_a_restart_and_replaces_others(
    start_broker: StartBroker,
) -> None:
    async with start_broker(replication=TWO, remoting_port=0, folder="master") as master:
        clock, config = master.clock, slave_config(master)
        async with start_broker(replication=config, clock=clock, folder="slave") as slave:
            await staged(Pair(master, slave))
            folder = slave.broker.store.staging.folder
            first, second = (folder / name for name in staging_files(slave))
            inode, content = first.stat().st_ino, second.read_bytes()
        second.write_bytes(content[:-1])
        (folder / f"{7:020d}").write_bytes(b"of an earlier master")
        (folder / f"{8:020d}.tmp").write_bytes(b"of a copy")
        async with start_broker(replication=config, clock=clock, folder="slave") as slave:
            await copied(Pair(master, slave))
            assert first.stat().st_ino == inode
            assert second.read_bytes() == content


@pytest.mark.parametrize("name", ["../passwd", "1", "\u0663" * 20, ""])
async def test_h04_a_master_cannot_name_other_files(
    start_broker: StartBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(start_broker, TWO) as both:
        offer(both.master, name, 1)
        await both.until(lambda: "it names a staging file" in caplog.text)


def offer(master: RunningBroker, name: str, fingerprint: int) -> None:
    """Adds a file to the master's list."""
    files = master.broker.services.batches.files
    files._add(FileChange(name, fingerprint))
    files._present[name] = files._end


# --- The master's side, with a slave by hand ---


async def changes(
    client: RemotingClient, position: int = 0, run_id: str = ""
) -> tuple[StagedFilesResponse, list[StagedFileChange]]:
    """Asks for changes; the slave has all before `position`."""
    answer = await client.ask(Code.GET_STAGED_FILES, StagedFilesRequest("s", run_id, position))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    header = EXCHANGES[Code.GET_STAGED_FILES].response.decode(answer.ext_fields)
    return header, list(decode_body(StagedFileChanges, answer.body).changes)


async def test_h04_a_decision_waits_for_copies_and_a_commit_for_the_log(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(FlushDiskType.SYNC_FLUSH, replication=TWO, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
        slave_of(running, 0) as slave,
    ):
        client = remoting.client
        await running.create_topic("T", queues=1)
        head, found = await changes(client)
        assert (head.position, found, head.is_end) == (0, [], True)
        job = Job(running)
        await job.stage((0, [A]))
        answer = await job.commit(wait_ms_max=0)
        assert (answer.outcome, answer.hindrance) == (broker_pb2.NOT_COMMITTED, UNCOPIED)
        head, [change] = await changes(client, 0, head.run_id)
        path = running.broker.store.staging.folder / change.name
        piece = await client.ask(Code.READ_STAGED_FILE, StagedFileRequest(change.name, 0))
        rest = StagedFileRequest(change.name, len(piece.body))
        assert bytes(piece.body) == path.read_bytes()
        assert (await client.ask(Code.READ_STAGED_FILE, rest)).body == b""
        # The list alone is no copy: the next request says that.
        assert (await job.commit(wait_ms_max=0)).outcome == broker_pb2.NOT_COMMITTED
        held = asyncio.ensure_future(changes(client, head.position, head.run_id))
        committing = asyncio.ensure_future(job.commit())
        await until(lambda: running.broker.store.next_offset(QueueKey("T", 0)) == 1)
        await asyncio.sleep(0.05)
        assert not committing.done()
        await confirmed(running, slave, committing)
        assert committing.result().outcome == broker_pb2.COMMITTED
        store = running.broker.store
        await until(lambda: store.flushed_end == store.positions().log_end)
        running.clock.advance(SWEEP_MS)
        head, [gone] = await held
        assert (gone.name, gone.is_removed, head.is_end) == (change.name, True, True)
        missing = await client.ask(Code.READ_STAGED_FILE, StagedFileRequest(change.name, 0))
        assert (missing.code, missing.remark) == (
            ResponseCode.MESSAGE_ILLEGAL,
            f"there is no staging file {change.name!r}",
        )


async def test_h04_a_batch_waits_for_a_silent_slave_for_a_while_only(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(replication=SYNC, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await running.create_topic("T", queues=1)
        await changes(remoting.client)
        job = Job(running)
        await job.stage((0, [A]))
        assert (await job.commit(wait_ms_max=0)).outcome == broker_pb2.NOT_COMMITTED
        committing = asyncio.ensure_future(job.commit(wait_ms_max=2 * SILENT_MS_MAX))
        while not committing.done():
            running.clock.advance(RETRY_MS)
            await asyncio.sleep(0.01)
        # No slave is connected, so this master waits for none.
        assert committing.result().outcome == broker_pb2.COMMITTED


async def test_h04_a_batch_that_slaves_have_not_confirmed_stays_in_progress(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker(replication=TWO, remoting_port=0) as running,
        RemotingBroker.of(running) as remoting,
    ):
        await running.create_topic("T", queues=1)
        job = Job(running)
        await job.stage((0, [A]))
        head, _ = await changes(remoting.client)
        asking = asyncio.ensure_future(changes(remoting.client, head.position, head.run_id))
        await until(lambda: has_copies(running.broker.services.batches.files))
        answer = await job.commit(wait_ms_max=0)
        while not answer.hindrance:
            running.clock.advance(500)
            answer = await job.query(wait_ms_max=0)
        assert answer.outcome == broker_pb2.IN_PROGRESS
        assert answer.hindrance == "stored, but not confirmed by 1 slave within 3000 ms"
        async with slave_of(running, 0) as slave:
            await read_all(running, slave)
            slave.report(slave.end)
            running.clock.advance(RETRY_MS)
            assert (await job.query()).outcome == broker_pb2.COMMITTED
        await asking


async def test_h02_the_end_of_a_transaction_waits_for_slaves(start_broker: StartBroker) -> None:
    async with start_broker(replication=TWO) as running, slave_of(running, 0) as slave:
        await running.create_topic("T", queues=2)
        preparing = asyncio.ensure_future(prepare(running, "t"))
        await confirmed(running, slave, preparing)
        ending = asyncio.ensure_future(end(running, await preparing, COMMIT))
        await until(lambda: running.broker.store.next_offset(QueueKey("T", 1)) == 1)
        await asyncio.sleep(0.05)
        assert not ending.done()
        await confirmed(running, slave, ending)
        assert await ending == ResponseCode.SUCCESS


async def confirmed(running: RunningBroker, slave: Slave, work: asyncio.Future[Any]) -> None:
    """Confirms the log's end until the work is done."""
    while not work.done():
        await read_all(running, slave)
        slave.report(slave.end)
        await asyncio.sleep(0.01)


async def read_all(running: RunningBroker, slave: Slave) -> None:
    while slave.end < running.broker.store.positions().log_end:
        frame = await slave.frame()
        slave.begin = max(slave.begin, 0)
        slave.log += frame.data
