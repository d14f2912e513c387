"""Staged blocks: which of them are kept, for how long, in how much space, over restarts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketpy_broker.config import BrokerConfig, Limits
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.files import durable
from rocketpy_proto.counts import counted
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Host, Record, encode_record
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.batch_writer import Job, Task, bodies, staging_files
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import STAGING, before_call, failing

ILLEGAL = ResponseCode.MESSAGE_ILLEGAL
COMMITTED, INCOMPLETE = broker_pb2.COMMITTED, broker_pb2.INCOMPLETE
# The body is also the message's key, so the message takes twice its size.
BODY = bytes([97]) * 9_000
IDLE_MS = BrokerConfig(Path()).staging_idle_ms_max


async def test_s10_a_block_that_comes_again_is_answered_and_kept_once(
    running: RunningBroker, job: Job
) -> None:
    task = await job.stage((0, [b"a"]), (0, [b"b"]))
    for number in (0, 1, 0):
        answer = await task.ask(task.block(0, b"again", block_number=number))
        assert answer.status.code == ResponseCode.SUCCESS
        assert (answer.block_count, answer.record_count) == (2, 2)
    assert (await task.end()).block_count == 2
    assert (await job.commit()).outcome == COMMITTED
    assert await bodies(running) == [b"a", b"b"]


async def test_s10_a_block_behind_a_missing_one_or_behind_the_end_is_refused(
    job: Job,
) -> None:
    task = Task(job, 0, 1)
    await task.send(0, b"a")
    for number in (2, 1 << 40):
        answer = await task.ask(task.block(0, b"late", block_number=number))
        assert (answer.status.code, answer.block_count) == (ILLEGAL, 0)
    task.block_count = 2
    assert (await task.end()).status.code == ILLEGAL
    task.block_count = 1
    assert (await task.end()).status.code == ResponseCode.SUCCESS
    assert (await task.send(0, b"more")).status.code == ILLEGAL


async def test_s10_one_stream_stages_block_after_block_and_a_refused_one_does_not_end_it(
    running: RunningBroker, job: Job
) -> None:
    task = Task(job, 0, 1)
    wrong = task.block(0, b"b", block_number=1)
    wrong.records = wrong.records[:-1]
    requests = [
        broker_pb2.StageBlocksRequest(job=job.name, task=0, task_token=1),
        task.block(0, b"a", block_number=0),
        task.block(99, b"b", block_number=1),
        wrong,
        task.block(0, b"b", block_number=1),
    ]
    answers = [answer async for answer in running.data.StageBlocks(iter(requests))]
    codes = [answer.status.code for answer in answers]
    assert codes == [0, 0, ResponseCode.INVALID_PARAMETER, ILLEGAL, 0]
    assert [answer.block_count for answer in answers] == [0, 1, 0, 0, 2]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "Missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "SELF_TEST_TOPIC"}, None),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -3}, ResponseCode.INVALID_PARAMETER),
        ({"record_sizes": b"\0\0\0"}, ILLEGAL),
        ({"record_sizes": b""}, ILLEGAL),
        ({"records": b"x"}, ILLEGAL),
    ],
)
async def test_s10_what_may_not_be_stored_is_not_staged(
    change: dict[str, object], code: int | None, running: RunningBroker
) -> None:
    await running.create_topic("T")
    task = Task(Job(running), 0, 1)
    request = task.block(0, b"a")
    for name, value in change.items():
        setattr(request, name, value)
    answer = await task.ask(request)
    assert answer.status.code == code or (code is None and answer.status.code)
    assert running.broker.store.staging.used_bytes == 0
    assert (await task.send(0, b"a")).status.code == ResponseCode.SUCCESS


async def test_s10_a_record_that_fits_no_segment_and_a_body_too_long_are_refused(
    start_broker: StartBroker,
) -> None:
    async with start_broker(limits=Limits(body_bytes_max=2 << 20)) as running:
        await running.create_topic("T")
        task = Task(Job(running), 0, 1)
        for size in (1 << 20, (2 << 20) + 1):
            block = wire_block("T", [bytes(size)])
            request = task.block(0, b"a")
            request.records, request.record_sizes = block.records, block.record_sizes
            answer = await task.ask(request)
            assert answer.status.code == ILLEGAL
            assert "fit a commit log segment" in answer.status.remark or size > 2 << 20


@pytest.mark.parametrize("restart", [False, True])
async def test_s10_a_block_larger_than_a_segment_is_stored_in_parts(
    start_broker: StartBroker, restart: bool
) -> None:
    wanted = [b"%04d" % number + bytes(9_996) for number in range(250)]
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        block = wire_block("T", wanted)
        request = task.block(0, b"a")
        request.records, request.record_sizes = block.records, block.record_sizes
        answer = await task.ask(request)
        assert (answer.status.code, answer.record_count) == (0, 250)
        task.block_count, task.record_count, task.record_bytes = 1, 250, len(block.records)
        await task.end()
        job.staged.append(task)
        if not restart:
            assert (await job.commit()).record_count == 250
            assert await bodies(running) == wanted
    async with start_broker() as running:
        job.running = running
        assert (await job.commit()).record_count == 250
        assert await bodies(running) == wanted


async def test_s10_a_record_for_a_store_host_of_another_ip_version_is_refused(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    task = Task(Job(running), 0, 1)
    request = task.block(0, b"a")
    record = encode_record(Record("T", 0, b"a", store_host=Host.parse("[::1]:10911")))
    request.records, request.record_sizes = record, len(record).to_bytes(4, "big")
    answer = await task.ask(request)
    assert (answer.status.code, answer.block_count) == (ILLEGAL, 0)
    assert "IP version" in answer.status.remark


async def test_s10_queue_id_minus_one_lets_the_broker_choose(
    running: RunningBroker, job: Job
) -> None:
    await job.stage(*((-1, [b"%d" % number]) for number in range(4)))
    await job.commit()
    assert [len(await bodies(running, queue_id)) for queue_id in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_s10_an_attempt_goes_on_after_a_restart(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        half = Task(Job(running), 0, 1)
        await half.send(0, b"a")
    async with start_broker(flush) as running:
        half.job.running = running
        assert (await half.ask(half.block(0, b"again", block_number=0))).block_count == 1
        await half.send(0, b"b")
        await half.end()
        half.job.staged.append(half)
    async with start_broker(flush) as running:
        half.job.running = running
        assert running.broker.store.staging.used_bytes > 0
        assert (await half.job.commit()).outcome == COMMITTED
        assert await bodies(running) == [b"a", b"b"]


@pytest.mark.parametrize("kept", ["nothing", "part of the attempt", "part of the last block"])
async def test_s10_a_file_that_a_crash_has_torn_ends_behind_its_last_whole_block(
    start_broker: StartBroker, tmp_path: Path, kept: str
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        task = Task(Job(running), 0, 1)
        await task.send(0, b"a")
        begin = path_of(tmp_path).stat().st_size
        await task.send(0, b"b")
    path = path_of(tmp_path)
    size = {"nothing": 0, "part of the attempt": 50, "part of the last block": begin + 70}[kept]
    path.write_bytes(path.read_bytes()[:size])
    async with start_broker() as running:
        task.job.running = running
        blocks = 1 if size > begin else 0
        answer = await task.ask(task.block(0, b"late", block_number=2))
        assert (
            answer.status.code,
            f"after {counted(blocks, 'block')}" in answer.status.remark,
        ) == (
            ILLEGAL,
            True,
        )
        task.block_count, task.record_count, task.record_bytes = blocks, blocks, 0
        for body in [b"a", b"b"][blocks:]:
            assert (await task.send(0, body)).status.code == ResponseCode.SUCCESS
        answer = await task.end()
        task.record_bytes = answer.bytes
        task.job.staged.append(task)
        assert (await task.job.commit()).outcome == COMMITTED
        assert await bodies(running) == [b"a", b"b"]


def path_of(folder: Path) -> Path:
    """Returns the path of the only staging file."""
    (path,) = (folder / "rocketpy" / "staging").iterdir()
    return path


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("place", [10, 80, 160, -30])
async def test_s10_damage_before_the_decision_fails_by_name_and_shows_nothing(
    start_broker: StartBroker, tmp_path: Path, place: int, restart: bool
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        job = Job(running)
        await job.stage((0, [b"a", b"b"]), (0, [b"c"]))
        path = path_of(tmp_path)
        if not restart:
            flip(path, place)
            await check_refused(job, path)
    if restart:
        flip(path, place)
        async with start_broker() as running:
            job.running = running
            await check_refused(job, path)


@pytest.mark.parametrize("is_last", [False, True])
async def test_s10_damage_while_it_is_staged_fails_by_name_and_shows_nothing(
    tmp_path: Path, is_last: bool, job: Job
) -> None:
    task = Task(job, 0, 1)
    await task.send(0, b"a")
    path = path_of(tmp_path)
    written_ns = path.stat().st_mtime_ns
    flip(path, -30)
    # The clock of files is coarse.
    os.utime(path, ns=(written_ns, written_ns + 1))
    if not is_last:
        await task.send(0, b"b")
    await task.end()
    job.staged.append(task)
    await check_refused(job, path)


async def check_refused(job: Job, path: Path) -> None:
    answer = await job.commit()
    assert answer.status.code == ILLEGAL, answer
    assert path.name in answer.status.remark or "nothing is staged" in answer.status.remark
    assert "Write the batch again" in answer.status.remark
    assert await bodies(job.running) == []
    # Another job for the batch repairs it.
    again = Job(job.running, token=4)
    await again.stage((0, [b"a"]))
    assert (await again.commit()).outcome == COMMITTED
    assert await bodies(job.running) == [b"a"]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


async def test_s10_a_removed_file_fails_the_commit_by_name(
    tmp_path: Path, running: RunningBroker, job: Job
) -> None:
    await job.stage((0, [b"a"]))
    path = path_of(tmp_path)
    path.unlink()
    answer = await job.commit()
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert path.name in answer.status.remark
    assert await bodies(running) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_s10_a_write_that_fails_stages_nothing_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, code: int, running: RunningBroker, job: Job
) -> None:
    task = Task(job, 0, 1)
    await task.send(0, b"a")
    used = running.broker.store.staging.used_bytes

    def fail(*_: object) -> None:
        raise OSError(code, "as the disk says")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_whole", fail)
        answer = await task.send(0, b"b")
    assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "as the disk says" in answer.status.remark
    assert running.broker.store.staging.used_bytes == used
    await task.send(0, b"b")
    await task.end()
    job.staged.append(task)
    await job.commit()
    assert await bodies(running) == [b"a", b"b"]


async def test_f8_an_end_that_cannot_be_flushed_is_of_no_more_use(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        job = Job(running)
        task = Task(job, 0, 1)
        await task.send(0, b"a")
        with monkeypatch.context() as patch:
            before_call(patch, "fdatasync", STAGING, failing(errno.EIO))
            assert (await task.end()).status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert staging_files(running) == []
        assert (await task.end()).status.code == ILLEGAL
        await job.stage((0, [b"again"]))
        assert (await job.commit()).outcome == COMMITTED
