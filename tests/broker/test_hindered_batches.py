"""What hinders a batch that is decided: a full, slow or failing disk, a stop half way."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.batches import RETRY_MS
from rocketpy_broker.store import prepared
from rocketpy_broker.store.flush import FlushDiskType, FlushPlan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.segment import Segment
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.broker.batches import bodies, commit, prepare
from tests.broker.conftest import StartBroker

ALREADY = broker_pb2.ALREADY_COMMITTED


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Lets the store take so many more appends, or any number."""
    append = MessageStore.append
    left: list[int | None] = [None]

    def counted(store: MessageStore, *arguments: object) -> object:
        if left[0] == 0:
            raise StoreClosedError("no room")
        left[0] = left[0] and left[0] - 1
        return append(store, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MessageStore, "append", counted)

    def give(count: int | None) -> None:
        left[0] = count

    return give


async def test_s08_what_stopped_half_way_is_finished_before_the_writer_gets_an_answer(
    start_broker: StartBroker,
    room_for: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared, "PART_BYTES", 1)
    async with start_broker() as running:
        await running.create_topic("T")
        wanted = await prepare(running, 0, b"a", b"b", b"c")
        room_for(2)
        answer = await commit(running, 0, wanted)
        assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await bodies(running) == [b"a"]
        assert (await commit(running, 0, wanted)).status.code != ResponseCode.SUCCESS
        room_for(None)
        assert (await commit(running, 0, wanted)).outcome == ALREADY
        assert await bodies(running) == [b"a", b"b", b"c"]


async def test_s08_what_stopped_half_way_is_finished_by_the_next_start(
    start_broker: StartBroker,
    room_for: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prepared, "PART_BYTES", 1)
    async with start_broker() as running:
        await running.create_topic("T")
        ranges = [await prepare(running, 0, b"a", b"b"), await prepare(running, 0, b"c", b"d")]
        room_for(3)
        await commit(running, 0, *reversed(ranges))
        assert await bodies(running) == [b"c", b"d"]
    room_for(None)
    async with start_broker() as running:
        assert await bodies(running) == [b"c", b"d", b"a", b"b"]
        assert (await commit(running, 0, *ranges)).outcome == ALREADY


async def test_s08_a_flush_that_fails_is_no_answer_and_the_next_start_finishes_the_batch(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_segment: Segment) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        wanted = await prepare(running, 0, b"a", b"b")
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "flush", fail)
            answer = await commit(running, 0, wanted)
        assert answer.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "read-only" in answer.status.remark
        assert await bodies(running) == []
        again = await commit(running, 0, wanted)
        assert again.status.code == ResponseCode.SERVICE_NOT_AVAILABLE
        running.clock.advance(RETRY_MS)
        assert await bodies(running) == []
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        assert await bodies(running) == [b"a", b"b"]
        assert (await commit(running, 0, wanted)).outcome == ALREADY


async def test_s08_a_disk_that_is_too_slow_is_an_answer_and_the_batch_gets_there(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    run = FlushPlan.run

    def wait_and_run(plan: FlushPlan) -> None:
        assert goes_on.wait(60)
        run(plan)

    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        wanted = await prepare(running, 0, b"a")
        monkeypatch.setattr(FlushPlan, "run", wait_and_run)
        asked = asyncio.ensure_future(commit(running, 0, wanted))
        assert running.broker.group_commit is not None
        waiting = running.broker.group_commit
        while not (waiting.waiting_count or asked.done()):  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0)
        running.clock.advance(5_000)
        answer = await asked
        goes_on.set()
        assert answer.status.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert (await commit(running, 0, wanted)).outcome == ALREADY
        assert await bodies(running) == [b"a"]


async def test_s08_what_nobody_asks_for_any_more_is_finished_all_the_same(
    start_broker: StartBroker, room_for: Callable[[int | None], None]
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        wanted = [await prepare(running, 0, b"a"), await prepare(running, 0, b"b")]
        room_for(2)
        await commit(running, 0, *wanted)
        running.clock.advance(RETRY_MS)
        assert await bodies(running) == [b"a"]
        assert running.broker.store.needed_from == wanted[0].physical_offset
        room_for(None)
        running.clock.advance(RETRY_MS)
        [pulled] = await running.pull(topic="T", queue_id=0, offset=1, wait_ms_max=60_000)
        assert pulled.next_offset == 2
        assert await bodies(running) == [b"a", b"b"]
