"""Single messages of one pass of the loop: stored as one block, answered one by one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from rocketpy_broker.config import Limits
from rocketpy_broker.errors import (
    BrokerError,
    QueueIdIllegalError,
    RecordIllegalError,
    StoreClosedError,
    TopicNotExistError,
)
from rocketpy_broker.hooks import Hook, HookAbortError, SendContext
from rocketpy_broker.services.send import batcher as send_batcher
from rocketpy_broker.services.send.blocks import Stored
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import ANY_QUEUE
from rocketpy_proto.record import RecordBlock
from tests.broker.send.test_large_blocks import LARGE, HeldWrites, append
from tests.support.blocks import WireBlock, bodies_of, wire_block
from tests.support.broker.installed_hooks import installed
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, DiskCall, before_call, noted_writes, refuse_writes

Answer = Stored | BaseException


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[RecordBlock]:
    """Returns a list of the stored blocks."""
    return noted_writes(monkeypatch)


def counts_of(blocks: list[RecordBlock]) -> list[int]:
    return [len(block) for block in blocks]


def sends_of(running: RunningBroker) -> SendService:
    return running.broker.services.sends


def message(body: bytes, topic: str = "T", **properties: str) -> WireBlock:
    return wire_block(
        topic, [body], properties={name: [value] for name, value in properties.items()}
    )


async def send_all(
    running: RunningBroker, *messages: tuple[int, WireBlock], topic: str = "T"
) -> list[Answer]:
    """Sends each by itself, all in one pass of the loop."""
    sends = (
        sends_of(running).append(topic, queue_id, one.records, one.record_sizes)
        for queue_id, one in messages
    )
    return await asyncio.gather(*sends, return_exceptions=True)


async def bodies(running: RunningBroker, queue_id: int, topic: str = "T") -> list[bytes]:
    return [
        body
        for response in await running.pull(topic=topic, queue_id=queue_id)
        for body in bodies_of(response.records, response.record_sizes)
    ]


def places(answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """Returns the queue and offset of each stored message."""
    stored = [answer for answer in answers if isinstance(answer, Stored)]
    assert [one.result.queue.queue_id for one in stored] == [one.queue_id for one in stored]
    return [(one.queue_id, one.result.queue_offset) for one in stored]


async def test_p01_messages_of_one_pass_are_one_block_and_each_is_told_its_place(
    blocks: list[RecordBlock], running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 2, b"before")
    blocks.clear()
    answers = await send_all(
        running, *((queue_id, message(b"%d" % n)) for n, queue_id in enumerate([2, 0, 2, 1, 0]))
    )
    assert counts_of(blocks) == [5]
    assert places(answers) == [(2, 1), (0, 0), (2, 2), (1, 0), (0, 1)]
    assert await bodies(running, 0) == [b"1", b"4"]
    assert await bodies(running, 1) == [b"3"]
    assert await bodies(running, 2) == [b"before", b"0", b"2"]
    for number, answer in enumerate(answers):
        assert isinstance(answer, Stored)
        record = running.broker.services.sends._store.messages.at(answer.result.physical_offset)
        assert record is not None
        assert bodies_of(bytes(record), np.array([len(record)])) == [b"%d" % number]
        assert answer.result.record_count == 1


async def test_p06_the_broker_chooses_queues_in_turn_also_for_gathered_messages(
    blocks: list[RecordBlock], running: RunningBroker
) -> None:
    await running.create_topic("T")
    answers = await send_all(running, *[(ANY_QUEUE, message(b"any"))] * 8)
    assert counts_of(blocks) == [8]
    assert sorted(places(answers)) == [(queue, offset) for queue in range(4) for offset in (0, 1)]


async def test_p01_more_messages_than_a_block_takes_go_into_several(
    blocks: list[RecordBlock], running: RunningBroker
) -> None:
    count = 2 * send_batcher.BATCH_SENDS_MAX + 1
    await running.create_topic("T")
    answers = await send_all(running, *[(0, message(b"%d" % n)) for n in range(count)])
    assert counts_of(blocks) == [send_batcher.BATCH_SENDS_MAX, send_batcher.BATCH_SENDS_MAX, 1]
    assert places(answers) == [(0, offset) for offset in range(count)]
    assert await bodies(running, 0) == [b"%d" % n for n in range(count)]


class Searched(bytes):
    """A record that counts the searches in it."""

    searches = 0

    def __contains__(self, part: object) -> bool:
        self.searches += 1
        return super().__contains__(part)  # type: ignore[operator]


async def test_n13_a_waiting_message_is_searched_a_few_times_however_many_wait(
    blocks: list[RecordBlock], running: RunningBroker
) -> None:
    await running.create_topic("T")
    waiting = message(bytes(10_000))
    records = Searched(waiting.records)
    waiting = replace(waiting, records=records)
    answers = await send_all(running, *[(0, waiting)] * 50)
    assert (len(places(answers)), counts_of(blocks)) == (50, [6] * 8 + [2])
    assert 0 < records.searches <= 3 * 50 * len(send_batcher.ALONE)


async def test_p01_messages_of_several_topics_are_gathered_by_topic(
    blocks: list[RecordBlock], running: RunningBroker
) -> None:
    for topic in "TU":
        await running.create_topic(topic)
    answers = await asyncio.gather(
        send_all(running, (0, message(b"1")), (0, message(b"2"))),
        send_all(running, (0, message(b"3", "U")), (0, message(b"4", "U")), topic="U"),
    )
    assert counts_of(blocks) == [2, 2]
    assert [places(each) for each in answers] == [[(0, 0), (0, 1)]] * 2
    assert await bodies(running, 0, "U") == [b"3", b"4"]


FOREIGN, LONG, DAMAGED = message(b"of U", "U"), message(bytes(101)), message(b"damaged")
DAMAGED = replace(DAMAGED, records=DAMAGED.records.replace(b"damaged", b"DAMAGED"))
SHORT = WireBlock(b"short", (5).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("queue_id", "wrong", "error"),
    [
        (0, FOREIGN, RecordIllegalError),
        (0, LONG, RecordIllegalError),
        (0, DAMAGED, RecordIllegalError),
        (0, SHORT, RecordIllegalError),
        (4, message(b"no such queue"), QueueIdIllegalError),
    ],
    ids=["of another topic", "too long", "damaged", "no record", "no queue"],
)
async def test_p03_what_is_wrong_with_one_message_is_told_to_its_sender_alone(
    start_broker: StartBroker, queue_id: int, wrong: WireBlock, error: type[BrokerError]
) -> None:
    async with start_broker(limits=Limits(body_bytes_max=100)) as running:
        await running.create_topic("T")
        good = [(0, message(b"good")), (0, message(b"too"))]
        answers = await send_all(running, good[0], (queue_id, wrong), good[1])
        assert places(answers) == [(0, 0), (0, 1)]
        [refused] = [answer for answer in answers if not isinstance(answer, Stored)]
        [alone] = await send_all(running, (queue_id, wrong))
        assert isinstance(refused, error)
        assert str(refused) == str(alone)
        assert await bodies(running, 0) == [b"good", b"too"]


async def test_p04_an_unknown_topic_is_refused_to_each(running: RunningBroker) -> None:
    answers = await send_all(running, *[(0, message(b"lost"))] * 3)
    assert [type(answer) for answer in answers] == [TopicNotExistError] * 3


async def test_d02_a_message_that_waits_does_so_and_those_beside_it_do_not(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await send_all(
        running,
        (0, message(b"now")),
        (0, message(b"later", DELAY="1")),
        (0, message(b"half", TRAN_MSG="true", PGROUP="producers")),
        (0, message(b"too")),
    )
    assert await bodies(running, 0) == [b"now", b"too"]


async def test_p01_a_message_that_does_not_wait_for_the_disk_says_so(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    answers = await send_all(
        running, (0, message(b"waits")), (0, message(b"does not", WAIT="false"))
    )
    assert [answer.waits for answer in answers if isinstance(answer, Stored)] == [True, False]


class Watching(Hook):
    """A hook that keeps the queues of sends, and refuses sends to one."""

    seen: ClassVar[list[int]] = []

    def before_send(self, context: SendContext) -> None:
        self.seen.append(context.queue_id)
        if context.queue_id == 1:
            raise HookAbortError("closed for today")


async def test_p02_hooks_see_each_message_and_refuse_one(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    Watching.seen.clear()
    with installed(tmp_path / "hooks", watching=f"{__name__}:Watching"):
        async with start_broker() as running:
            await running.create_topic("T")
            answers = await send_all(running, *((queue, message(b"m")) for queue in (0, 1, 2)))
        assert Watching.seen == [0, 1, 2]
        assert places(answers) == [(0, 0), (2, 0)]
        assert isinstance(answers[1], HookAbortError)


async def test_p01_a_sender_that_is_cancelled_first_stores_nothing(running: RunningBroker) -> None:
    await running.create_topic("T")
    sends = [
        asyncio.ensure_future(sends_of(running).append("T", 0, one.records, one.record_sizes))
        for one in map(message, (b"0", b"gone", b"2"))
    ]
    await asyncio.sleep(0)
    sends[1].cancel()
    answers = await asyncio.gather(*sends, return_exceptions=True)
    assert places(answers) == [(0, 0), (0, 1)]
    assert await bodies(running, 0) == [b"0", b"2"]


async def test_b09_single_messages_wait_for_a_large_block_and_for_no_thread(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, blocks: list[RecordBlock]
) -> None:
    held = HeldWrites(monkeypatch)
    async with start_broker() as running:
        await running.create_topic("T")
        large = append(running, LARGE)
        await until(lambda: bool(held.begun))
        sending = asyncio.ensure_future(send_all(running, *[(0, message(b"small"))] * 3))
        await running.pull(topic="T", queue_id=1)
        assert not sending.done()
        held.wake(1)
        assert places(await sending) == [(0, 1), (0, 2), (0, 3)]
        assert (await large).queue_offset == 0
        assert counts_of(blocks) == [1, 3]


@pytest.mark.parametrize("count", [1, 3])
async def test_n12_an_error_that_nobody_foresaw_leaves_no_sender_waiting(
    monkeypatch: pytest.MonkeyPatch, count: int, running: RunningBroker
) -> None:
    def fail(_call: DiskCall) -> None:
        raise ZeroDivisionError

    await running.create_topic("T")
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(type(context["exception"]))
    )
    with monkeypatch.context() as patch:
        before_call(patch, "pwrite", LOG, fail)
        answers = await send_all(running, *[(0, message(b"m"))] * count)
    assert [type(answer) for answer in answers] == [StoreClosedError] * count
    assert told == [ZeroDivisionError]
    assert places(await send_all(running, (0, message(b"m")))) == [(0, 0)]


async def test_f7_when_the_log_cannot_be_written_each_sender_is_told(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T")
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC, QueueKey("T", 0))
        answers = await send_all(running, *[(0, message(b"m"))] * 3)
    assert [type(answer) for answer in answers] == [StoreClosedError] * 3
    assert all("No space left on device" in str(answer) for answer in answers)
    assert places(await send_all(running, (0, message(b"m")))) == [(0, 0)]


@pytest.mark.parametrize("properties", [{"WAIT": "false"}, {"DELAY": "1"}])
async def test_p01_a_pass_of_the_loop_stores_few_messages_that_are_stored_alone(
    blocks: list[RecordBlock], running: RunningBroker, properties: dict[str, str]
) -> None:
    await running.create_topic("T")
    sending = asyncio.ensure_future(
        send_all(running, *[(0, message(b"%d" % n, **properties)) for n in range(20)])
    )
    counts: list[int] = []
    while not sending.done():
        before = len(blocks)
        await asyncio.sleep(0)
        counts.append(len(blocks) - before)
    assert len(places(await sending)) == 20
    assert [count for count in counts if count] == [4, 4, 4, 4, 4]
