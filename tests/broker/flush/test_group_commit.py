"""Group commit: senders that wait for the disk, for how long, and other work meanwhile."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.scheduler import running_scheduler
from rocketpy_broker.services.flush.admission import SMALL_BYTES_MAX
from rocketpy_broker.services.flush.group_commit import CALLERS_A_PASS, GroupCommit
from rocketpy_broker.services.flush.store_files import StoreFiles
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, DiskCall, Gate, before_call, failing, holding
from tests.support.store.messages import QUEUE, flush_log, numbered, put
from tests.support.store.stores import STORE_HOST, store_in


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Yields a gate; flushes of the log hang until it is opened."""
    with holding(monkeypatch, "fdatasync", LOG, sys.maxsize) as gate:
        yield gate


async def until_timers_run(running: RunningBroker, count: int) -> None:
    """Waits until `count` senders wait for the disk."""
    group_commit = running.broker.services.flush.group_commit
    while group_commit.waiting_count < count:  # noqa: ASYNC110 (no event)
        await asyncio.sleep(0)


def no_wait(values: list[str]) -> dict[str, list[str]]:
    return {"WAIT": values}


async def test_s07_messages_that_say_so_do_not_wait_for_the_disk(
    start_broker: StartBroker, slow_disk: Gate
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        block = wire_block("T", [b"a", b"b"], properties=no_wait(["false", "false"]))
        answer = await running.append_block("T", 0, block)
        assert answer.status.code == ResponseCode.SUCCESS
        # They are stored, and become visible when they are on disk.
        assert running.broker.store.flushed_end == 0
        [pulled] = await running.pull(topic="T", queue_id=0)
        assert not pulled.records
        slow_disk.open()
        [pulled] = await running.pull(topic="T", queue_id=0, wait_ms_max=60_000)
        assert pulled.next_offset == 2


@pytest.mark.parametrize("values", [["false", "true"], ["true", "false"], ["", ""]])
async def test_s07_a_block_waits_if_one_of_its_messages_does(
    start_broker: StartBroker, slow_disk: Gate, values: list[str]
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        block = wire_block("T", [b"a", b"b"], properties=no_wait(values))
        answering = asyncio.ensure_future(running.append_block("T", 0, block))
        await until_timers_run(running, 1)
        assert not answering.done()
        slow_disk.open()
        assert (await answering).status.code == ResponseCode.SUCCESS


async def test_p08_a_flush_that_takes_too_long_is_told_with_the_messages_place(
    start_broker: StartBroker, slow_disk: Gate
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        answering = asyncio.ensure_future(running.append("T", 1, b"a", b"b"))
        await until_timers_run(running, 1)
        running.clock.advance(4_999)
        await asyncio.sleep(0)
        assert not answering.done()
        running.clock.advance(1)
        answer = await answering
        assert answer.status.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert "within 5000 ms" in answer.status.remark
        assert (answer.queue_id, answer.queue_offset, answer.record_count) == (1, 0, 2)
        slow_disk.open()
        [pulled] = await running.pull(topic="T", queue_id=1, wait_ms_max=60_000)
        assert pulled.next_offset == 2


async def test_s02_too_much_on_its_way_to_the_disk_is_answered_busy(
    start_broker: StartBroker, slow_disk: Gate
) -> None:
    limits = Limits(unflushed_bytes_max=100)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        await running.create_topic("T")
        first = asyncio.ensure_future(running.append("T", 0, b"fills the room"))
        await until_timers_run(running, 1)
        second = asyncio.ensure_future(running.append("T", 0, b"waits for room"))
        await until_timers_run(running, 2)
        running.clock.advance(5_000)
        assert (await first).status.code == ResponseCode.FLUSH_DISK_TIMEOUT
        busy = (await second).status
        assert busy.code == ResponseCode.SYSTEM_BUSY
        assert "[PC_SYNCHRONIZED]" in busy.remark
        slow_disk.open()
        third = await running.append("T", 0, b"again")
        assert third.status.code == ResponseCode.SUCCESS
        assert third.queue_offset == 1


def async_store(folder: Path, clock: ManualClock, segment_bytes: int = 65_536) -> MessageStore:
    sizes = {"segment_bytes": segment_bytes, "queue_file_bytes": 2_000}
    index = {"index_slot_count": 100, "index_entry_count_max": 1_000}
    store = store_in(folder, clock, **sizes, **index)
    store.open()
    return store


async def until_asleep(clock: ManualClock) -> None:
    """Waits until a loop waits for its next interval."""
    await until(lambda: bool(clock._timers))


async def test_s07_async_flush_leaves_a_few_pages_alone_but_not_for_long(tmp_path: Path) -> None:
    clock = ManualClock()
    store = async_store(tmp_path, clock)
    times = FlushTimes(flush_interval_ms=500, least_bytes=4096, thorough_interval_ms=10_000)
    group_commit = GroupCommit(store, clock, FlushDiskType.ASYNC_FLUSH, times)
    flushing = asyncio.ensure_future(group_commit.run())
    await until_asleep(clock)
    clock.advance(500)
    await until_asleep(clock)
    put(store, [b"little"])
    for _ in range(19):
        clock.advance(500)
        await until_asleep(clock)
    assert store.flushed_end == 0
    clock.advance(500)
    await until_asleep(clock)
    assert store.flushed_end == store.positions().log_end > 0
    put(store, [bytes(5_000)])
    clock.advance(500)
    await until_asleep(clock)
    assert store.flushed_end == store.positions().log_end
    flushing.cancel()
    await asyncio.wait([flushing])
    group_commit.close()
    store.close()


async def test_s14_the_next_segment_is_ready_before_the_last_one_is_full(tmp_path: Path) -> None:
    clock = ManualClock()
    store = async_store(tmp_path, clock, segment_bytes=8192)
    store_files = StoreFiles(store, clock, 1_000)
    flushing = asyncio.ensure_future(store_files.run())
    log = tmp_path / "commitlog"

    async def tick() -> list[int]:
        await until_asleep(clock)
        clock.advance(1_000)
        await until_asleep(clock)
        return sorted(int(path.name) for path in log.iterdir())

    put(store, numbered(3))
    assert await tick() == [0]
    put(store, [bytes(4_000)])
    assert await tick() == [0, 8192]
    assert await tick() == [0, 8192]
    put(store, [bytes(6_000)])
    assert await tick() == [0, 8192, 16384]
    flushing.cancel()
    await asyncio.wait([flushing])
    store_files.close()
    store.close()
    # A clean stop removes files that were never used.
    assert sorted(int(path.name) for path in log.iterdir()) == [0, 8192]


async def test_f07_a_disk_that_stays_full_is_a_line_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = async_store(tmp_path, clock, segment_bytes=8192)
    put(store, [bytes(6_000)])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "create_allocated", full)
    store_files = StoreFiles(store, clock, 1_000)
    flushing = asyncio.ensure_future(store_files.run())
    for _ in range(62):
        await until_asleep(clock)
        clock.advance(1_000)
    await until_asleep(clock)
    flushing.cancel()
    await asyncio.wait([flushing])
    store_files.close()
    store.close()
    assert sum("no segment could be prepared" in line for line in caplog.messages) == 2


async def test_s09_each_segment_spares_the_next_start_what_came_before(tmp_path: Path) -> None:
    clock = ManualClock()
    store = async_store(tmp_path, clock, segment_bytes=8192)
    store_files = StoreFiles(store, clock, 1_000)
    flushing = asyncio.ensure_future(store_files.run())
    for _ in range(6):
        await until_asleep(clock)
        put(store, [bytes(3_000)])
        flush_log(store)
        clock.advance(1_000)
    await until_asleep(clock)
    end = store.positions().log_end
    flushing.cancel()
    await asyncio.wait([flushing])
    store_files.close()
    store._release()
    again = MessageStore(store.config, clock, STORE_HOST)
    result = again.open()
    assert result.abnormal
    assert 0 < result.begin < result.end == end
    assert again.range_of(QUEUE).max_offset == 6
    again.close()


async def test_f8_a_flush_whose_mark_cannot_be_written_has_failed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a copy-on-write file system, which may lack room for what is overwritten in place."""
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"durable")
        with monkeypatch.context() as patch:
            before_call(patch, "pwrite", "*/rocketpy/flushed", failing(errno.ENOSPC))
            for body in (b"first", b"second"):
                refused = await running.append("T", 0, body)
                assert refused.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert "No space left on device" in refused.status.remark
                assert "read-only" in refused.status.remark
        (shown,) = await running.pull(topic="T", queue_id=0)
        assert bodies_of(shown.records, shown.record_sizes) == [b"durable"]


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "no disk")])
async def test_b09_bulk_makes_way_for_the_flush_thread_while_it_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    at_work: list[int] = []
    queue = running_scheduler()

    def noting(_call: DiskCall) -> None:
        at_work.append(queue._threads_at_work)
        if error is not None:
            raise error

    sync = FlushDiskType.SYNC_FLUSH
    store, clock = store_in(tmp_path, None, sync), ManualClock()
    store.open()
    group_commit = GroupCommit(store, clock, sync, FlushTimes())
    put(store, [b"x"])
    with monkeypatch.context() as patch:
        before_call(patch, "fdatasync", LOG, noting)
        await group_commit.flush()
    assert at_work == [1]
    assert queue._threads_at_work == 0
    group_commit.close()
    store.close()


async def test_b09_bulk_makes_way_for_threads_that_check_and_write_large_blocks(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[int] = []
    queue = running_scheduler()

    def noting(call: DiskCall) -> None:
        if len(call.arguments[0]) > SMALL_BYTES_MAX:
            at_work.append(queue._threads_at_work)

    before_call(monkeypatch, "pwrite", LOG, noting)
    async with start_broker() as running:
        await running.create_topic("T")
        await running.append("T", 0, bytes(2 * SMALL_BYTES_MAX))
    assert at_work == [1]


async def test_s07_answers_of_a_stream_keep_their_order_beside_one_that_waits_for_the_disk(
    start_broker: StartBroker, slow_disk: Gate
) -> None:
    """Asserts that messages without a wait, and refusals, keep their order in the stream."""
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        waits, passes = (
            wire_block("T", [b"m"], properties=no_wait([value])) for value in ("true", "false")
        )
        call = running.data.Append()
        for block, topic in ((waits, "T"), (passes, "T"), (passes, "none"), (waits, "T")):
            await call.write(
                broker_pb2.AppendRequest(
                    topic=topic, records=block.records, record_sizes=block.record_sizes
                )
            )
        await until(lambda: running.broker.store.statistics.put_message_count == 3)
        reading = asyncio.ensure_future(call.read())
        await running.pull(topic="T", queue_id=0)
        assert not reading.done()
        slow_disk.open()
        answers = [await reading, *[await call.read() for _ in range(3)]]
        codes = [answer.status.code for answer in answers]
        assert codes == [0, 0, ResponseCode.TOPIC_NOT_EXIST, 0]
        assert [answer.queue_offset for answer in answers] == [0, 1, 0, 2]
        assert answers[2].record_count == 0
        # Now nothing is before it.
        await call.write(broker_pb2.AppendRequest(topic="none"))
        assert (await call.read()).status.code == ResponseCode.TOPIC_NOT_EXIST
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF


async def test_n14_a_flush_with_many_senders_is_answered_over_several_passes_of_the_loop(
    start_broker: StartBroker, slow_disk: Gate
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        group_commit = running.broker.services.flush.group_commit
        answering = asyncio.ensure_future(running.append("T", 0, b"a"))
        await until_timers_run(running, 1)
        end, passes = running.broker.store.positions().log_end, [0]

        async def passed() -> int:
            await group_commit.wait(end)
            return passes[0]

        senders = [asyncio.ensure_future(passed()) for _ in range(3 * CALLERS_A_PASS)]
        await until_timers_run(running, 3 * CALLERS_A_PASS)
        slow_disk.open()
        while not all(sender.done() for sender in senders):
            passes[0] += 1
            await asyncio.sleep(0)
        numbers = [sender.result() for sender in senders]
        assert max(map(numbers.count, numbers)) <= CALLERS_A_PASS
        assert (await answering).status.code == ResponseCode.SUCCESS


async def test_p01_senders_that_wait_for_a_write_continue_in_their_order(
    running: RunningBroker,
) -> None:
    admission, order = running.broker.services.sends.admission, list[int]()

    async def sender(number: int) -> None:
        await admission.write_over()
        order.append(number)

    with admission.writing():
        senders = [asyncio.ensure_future(sender(number)) for number in range(5)]
        await asyncio.sleep(0)
    await asyncio.gather(*senders)
    assert order == [0, 1, 2, 3, 4]
