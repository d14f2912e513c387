"""Writers that a broker forgets: they start again, and nothing earlier counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2, testing_pb2, testing_pb2_grpc
from tests.support.broker.clients.batch_writer import Job, bodies
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def forget(running: RunningBroker) -> None:
    stub = testing_pb2_grpc.TestingStub(running.channel)
    answer = await stub.ForgetWriters(testing_pb2.ForgetWritersRequest())
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark


def staged_files(running: RunningBroker) -> list[Path]:
    folder = running.broker.store.config.folder / "rocketpy" / "staging"
    return [path for path in folder.iterdir() if path.is_file()]


async def written(running: RunningBroker, body: bytes, token: int) -> broker_pb2.BatchResponse:
    job = Job(running, batch_id=5, token=token)
    await job.stage((0, [body]))
    answer = await job.commit()
    assert answer.status.code == ResponseCode.SUCCESS, answer.status.remark
    return answer


async def test_a_forgotten_writer_writes_its_batch_again(start_broker: StartBroker) -> None:
    async with start_broker(clock_ahead_ms=0) as running:
        await running.create_topic("T")
        await written(running, b"first", 1)
        await written(running, b"repeated", 2)
        assert await bodies(running) == [b"first"]
        await forget(running)
        await written(running, b"second", 3)
        await written(running, b"repeated", 4)
        assert await bodies(running) == [b"first", b"second"]


async def test_what_is_staged_is_removed(start_broker: StartBroker) -> None:
    async with start_broker(clock_ahead_ms=0) as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a"]))
        assert staged_files(running) != []
        await forget(running)
        assert staged_files(running) == []
        answer = await job.commit()
        assert answer.status.code != ResponseCode.SUCCESS


@pytest.mark.parametrize("how", ["start_broker", "start_crashed"])
@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("is_saved", [True, False])
async def test_a_forgotten_writer_stays_forgotten_over_a_restart(
    request: pytest.FixtureRequest, how: str, flush: FlushDiskType, is_saved: bool
) -> None:
    start: StartBroker = request.getfixturevalue(how)
    start_broker: StartBroker = request.getfixturevalue("start_broker")
    async with start(flush, clock_ahead_ms=0) as running:
        await running.create_topic("T")
        await written(running, b"first", 1)
        if is_saved:
            tables = {table.name: table for table in running.broker._lifecycle.tables}
            await tables["BatchLedger"].save()
        await forget(running)
    async with start_broker(flush, clock_ahead_ms=0) as running:
        await written(running, b"second", 2)
        assert await bodies(running) == [b"first", b"second"]


async def test_writers_that_are_forgotten_during_a_save_stay_forgotten(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH, clock_ahead_ms=0) as running:
        await running.create_topic("T")
        await written(running, b"first", 1)
        ledger = running.broker.services.batches.commits._ledger
        ledger.done(ledger.next_offset, 0)
        plan = ledger.plan_save()
        assert plan is not None
        plan.run()
        ledger.forget_all(())
        plan.saved()
        again = ledger.plan_save()
        assert again is not None
        again.run()
        again.saved()
        assert ledger.plan_save() is None
        assert ledger._file.entries == {}
