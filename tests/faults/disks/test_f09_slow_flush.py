"""Slow flushes: only calls that wait for a flush are delayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import LOG, DiskCall, before_call
from tests.support.time_limits import WAIT_SECONDS_MAX

# The calls of each kind that have to be answered while one flush hangs.
CALLS = 200
SENDS = 50
HELD_SECONDS_MAX = WAIT_SECONDS_MAX
FLUSH_INTERVAL_MS = 1_000
FLUSH_TIMEOUT_MS = 5_000
FLUSH_DISK_TIMEOUT = 10


class SlowDisk:
    """A disk whose flushes hang from `hold` to `release`; none fails, and none is left out."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._began = threading.Event()

    def __call__(self, _call: DiskCall) -> None:
        """Comes before each flush of the log, on the flush thread."""
        self._began.set()
        assert self._free.wait(HELD_SECONDS_MAX)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets a flush hang that starts in the block, until `release` or the end."""
        self._began.clear()
        self._free.clear()
        try:
            yield
        finally:
            self.release()

    async def hangs(self) -> None:
        """Returns when a flush hangs."""
        assert await asyncio.to_thread(self._began.wait, HELD_SECONDS_MAX)

    def release(self) -> None:
        """Ends the flush, and all later ones."""
        self._free.set()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Returns a disk that can hang, under every broker of the test."""
    disk = SlowDisk()
    before_call(monkeypatch, "fdatasync", LOG, disk)
    return disk


async def bodies_in(running: RunningBroker, queue_id: int) -> list[bytes]:
    """Returns the messages that a reader sees in a queue."""
    found: list[bytes] = []
    for response in await running.pull(topic="T", queue_id=queue_id):
        found += bodies_of(response.records, response.record_sizes)
    return found


async def test_f9_all_else_is_answered_while_a_flush_hangs(
    start_broker: StartBroker, slow_disk: SlowDisk
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"durable")
        bodies = [b"%d" % number for number in range(SENDS)]
        with slow_disk.held():
            sends = [asyncio.ensure_future(running.append("T", 0, body)) for body in bodies]
            await slow_disk.hangs()
            await _ask_for_all_else(running)
            assert not any(send.done() for send in sends)
        answers = await asyncio.gather(*sends)
        assert {answer.status.code for answer in answers} == {ResponseCode.SUCCESS}
        by_offset = dict(zip((answer.queue_offset for answer in answers), bodies, strict=True))
        expected = [by_offset[offset] for offset in sorted(by_offset)]
        assert await bodies_in(running, 0) == [b"durable", *expected]


async def _ask_for_all_else(running: RunningBroker) -> None:
    health = health_pb2_grpc.HealthStub(running.channel)
    offsets = broker_pb2.QueryOffsetsRequest(topics=["T"])
    for _ in range(CALLS):
        answer = await health.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        [topic] = (await running.data.QueryOffsets(offsets)).topics
        assert topic.queues[0].max_offset == 1
        assert await bodies_in(running, 0) == [b"durable"]


async def test_f9_with_async_flush_nobody_waits(
    start_broker: StartBroker, slow_disk: SlowDisk
) -> None:
    async with start_broker(FlushDiskType.ASYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"first")
        bodies = [b"%d" % number for number in range(SENDS)]
        with slow_disk.held():
            running.clock.advance(FLUSH_INTERVAL_MS)
            await slow_disk.hangs()
            for body in bodies:
                answer = await running.append("T", 0, body)
                assert answer.status.code == ResponseCode.SUCCESS
            assert await bodies_in(running, 0) == [b"first", *bodies]


@pytest.mark.skipif(
    FLUSH_DISK_TIMEOUT not in set(ResponseCode), reason="the broker has no flush timeout yet"
)
async def test_f9_a_send_whose_flush_takes_too_long_is_told_so_with_its_place(
    start_broker: StartBroker, slow_disk: SlowDisk
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"durable")
        with slow_disk.held():
            send = asyncio.ensure_future(running.append("T", 0, b"slow"))
            await slow_disk.hangs()
            # The answer to another call shows that the send waits for its flush by now.
            assert await bodies_in(running, 0) == [b"durable"]
            running.clock.advance(FLUSH_TIMEOUT_MS - 1)
            assert await bodies_in(running, 0) == [b"durable"]
            assert not send.done()
            running.clock.advance(1)
            answer = await send
            assert await bodies_in(running, 0) == [b"durable"]
        assert answer.status.code == FLUSH_DISK_TIMEOUT
        assert (answer.queue_id, answer.queue_offset, answer.record_count) == (0, 1, 1)
        # The next send is flushed after the slow one, so that one is there by then.
        await running.append("T", 0, b"next")
        assert await bodies_in(running, 0) == [b"durable", b"slow", b"next"]


@pytest.mark.parametrize("wait", ["true", "false"])
async def test_f9_who_declines_to_wait_is_answered_while_a_flush_hangs(
    start_broker: StartBroker, slow_disk: SlowDisk, wait: str
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        block = wire_block("T", [b"a", b"b"], properties={"WAIT": [wait, wait]})
        with slow_disk.held():
            send = asyncio.ensure_future(running.append_block("T", 0, block))
            await slow_disk.hangs()
            running.clock.advance(FLUSH_TIMEOUT_MS)
            code = ResponseCode.SUCCESS if wait == "false" else FLUSH_DISK_TIMEOUT
            assert (await send).status.code == code


class SteppedDisk:
    """A disk whose flushes wait for one `step` each, or for the end of `with`."""

    def __init__(self) -> None:
        self._began = threading.Semaphore(0)
        self._may_end = threading.Semaphore(0)

    def __call__(self, _call: DiskCall) -> None:
        """Comes before each flush of the log, on the flush thread."""
        self._began.release()
        assert self._may_end.acquire(timeout=HELD_SECONDS_MAX)

    async def began(self) -> None:
        """Returns when one more flush waits."""
        assert await asyncio.to_thread(self._began.acquire, timeout=HELD_SECONDS_MAX)

    def step(self) -> None:
        """Ends one flush."""
        self._may_end.release()

    def __enter__(self) -> SteppedDisk:
        return self

    def __exit__(self, *_error: object) -> None:
        self._may_end.release(SENDS)


async def test_f9_a_flush_acknowledges_only_what_was_there_when_it_began(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        with SteppedDisk() as disk:
            before_call(monkeypatch, "fdatasync", LOG, disk)
            first = asyncio.ensure_future(running.append("T", 0, b"first"))
            await disk.began()
            log_end = running.broker.store.positions().log_end
            second = asyncio.ensure_future(running.append("T", 0, b"second"))
            while running.broker.store.positions().log_end == log_end:
                assert await bodies_in(running, 0) == []
            disk.step()
            assert (await first).status.code == ResponseCode.SUCCESS
            await disk.began()
            # Another call is answered while the second flush waits.
            assert await bodies_in(running, 0) == [b"first"]
            assert not second.done()
            disk.step()
            assert (await second).status.code == ResponseCode.SUCCESS
