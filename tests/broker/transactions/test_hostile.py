"""Transactions under attack: properties chosen by clients, ids used twice."""

from __future__ import annotations

import asyncio
import errno

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.services.send.half_message import HALF_QUEUE
from rocketpy_broker.services.transactions.check_service import WAITING_HALVES_MAX
from rocketpy_broker.services.transactions.messages import OP_QUEUE, OpMessage
from rocketpy_broker.services.transactions.open_transactions import COUNT_MAX
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.model import OP_TOPIC
from rocketpy_proto.model import TRANSACTION_GROUP as CHECKERS
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.layout import PROPERTIES_BYTES_MAX
from rocketpy_proto.record.single import Record
from rocketpy_proto.rocketpy.v1 import broker_pb2, transactions_pb2
from tests.broker.delay.test_levels import advance
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.transactions import (
    COMMIT,
    GROUP,
    LARGE,
    Half,
    Producer,
    append_commits,
    append_halves,
    bodies,
    count,
    end,
    ended,
    prepare,
    rounds,
)
from tests.support.store.disk_calls import refuse_writes


async def prepare_as(running: RunningBroker, group: str, key: str, body: bytes) -> Half:
    properties = {"TRAN_MSG": ["true"], "PGROUP": [group], "UNIQ_KEY": [key]}
    answer = await running.append_block("T", 1, wire_block("T", [body], properties=properties))
    assert answer.status.code == 0
    return Half(key, answer.physical_offset, answer.queue_offset)


async def test_t04_two_groups_with_one_id_are_two_transactions(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    first = await prepare_as(running, "one", "x", b"of one")
    second = await prepare_as(running, "two", "x", b"of two")
    await rounds(running)
    assert sorted(one.producer_group for one in producer.asked) == ["one", "two"]
    assert await end(running, first, COMMIT, group="one") == ResponseCode.SUCCESS
    assert await end(running, second, COMMIT, group="two") == ResponseCode.SUCCESS
    assert sorted(await bodies(running)) == [b"of one", b"of two"]


async def test_t02_a_commit_that_was_answered_with_success_is_in_the_topic(
    producer: Producer, running: RunningBroker
) -> None:
    """Sends the second half message with an id after a check of the first."""
    await running.create_topic("T")
    first = await prepare_as(running, "one", "x", b"of one")
    await rounds(running)
    second = await prepare_as(running, "two", "x", b"of two")
    await rounds(running)
    done = [
        body
        for half, group, body in ((first, "one", b"of one"), (second, "two", b"of two"))
        if await end(running, half, COMMIT, group=group) == ResponseCode.SUCCESS
    ]
    assert sorted(await bodies(running)) == sorted(done)


@pytest.mark.parametrize("text", ["²", "9" * 5_000])
async def test_t01_a_count_of_checks_that_is_no_number_stops_no_start(
    start_broker: StartBroker, text: str
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await prepare(running, "a", TRANSACTION_CHECK_TIMES=text)
    async with start_broker() as running:
        assert count(running, *HALF_QUEUE) == 1


@pytest.mark.parametrize("text", ["²", "9" * 5_000])
async def test_t04_a_time_of_immunity_that_is_no_number_ends_no_broker(
    producer: Producer, text: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await prepare(running, "a", CHECK_IMMUNITY_TIME_IN_SECONDS=text)
    await prepare(running, "b")
    await advance(running, 31_000)
    assert "b" in [one.transaction_id for one in producer.asked]


async def test_t04_a_half_message_without_room_for_a_count_holds_up_no_others(
    producer: Producer, running: RunningBroker
) -> None:
    await running.create_topic("T")
    code, length = -1, 32_767
    while code != ResponseCode.SUCCESS:
        length -= 1
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "a", "p": "x" * length}
        given = {name: [value] for name, value in properties.items()}
        if sum(len(name) + len(value) + 2 for name, value in properties.items()) < 32_767:
            block = wire_block("T", [b"a"], properties=given)
            code = (await running.append_block("T", 1, block)).status.code
    await prepare(running, "b")
    await advance(running, 61_000)
    assert "b" in [one.transaction_id for one in producer.asked]


@pytest.mark.parametrize("at", ["x", str(1_700_000_000_000 + 100 * 3_600_000)])
async def test_t02_what_could_be_prepared_can_be_committed(at: str, running: RunningBroker) -> None:
    await running.create_topic("T")
    given = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "a", "TIMER_DELIVER_MS": at}
    named = {name: [value] for name, value in given.items()}
    answer = await running.append_block("T", 1, wire_block("T", [b"a"], properties=named))
    if answer.status.code == ResponseCode.SUCCESS:
        half = Half("a", answer.physical_offset, answer.queue_offset)
        status = await ended(running, half, COMMIT)
        assert status.code == ResponseCode.SUCCESS, status.remark


async def test_t04_one_message_that_is_not_asked_after_holds_no_memory_of_others(
    start_broker: StartBroker,
) -> None:
    async with start_broker(**LARGE) as running:
        await running.create_topic("T")
        await prepare(running, "patient", CHECK_IMMUNITY_TIME_IN_SECONDS="200000")
        append_halves(running, WAITING_HALVES_MAX)
        append_commits(running, range(1, WAITING_HALVES_MAX + 1))
    async with start_broker(**LARGE) as running:
        table = running.broker.services.transactions.service._table
        assert len(table._ended) == WAITING_HALVES_MAX
        await rounds(running, 3)
        assert len(table._ended) < 10


async def test_n11_a_client_cannot_move_the_progress_of_transactions(
    start_broker: StartBroker, producer: Producer
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await prepare(running, "a")
        code = await commit_offset(running, 1)
    async with start_broker() as running:
        await rounds(running)
        assert [one.transaction_id for one in producer.asked] == ["a"], code


async def commit_offset(running: RunningBroker, offset: int) -> int:
    one = broker_pb2.CommittedOffset(
        topic=HALF_QUEUE.topic, queue_id=HALF_QUEUE.queue_id, offset=offset
    )
    request = broker_pb2.CommitOffsetsRequest(consumer_group=CHECKERS, offsets=[one])
    response: broker_pb2.CommitOffsetsResponse = await running.data.CommitOffsets(request)
    return response.status.code


async def test_n11_a_list_of_open_transactions_does_not_hold_their_bodies(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for number in range(40):
        await prepare_as(running, GROUP, f"{number}", b"x" * (1 << 19))
    listing = running.broker.services.transactions.listing
    found = await listing.open(transactions_pb2.ListTransactionsRequest())
    assert len(found.transactions) == 40
    assert found.ByteSize() < 1 << 20
    append_halves(running, COUNT_MAX - 39)
    await until(lambda: listing.open_count > COUNT_MAX)
    page = await listing.open(transactions_pb2.ListTransactionsRequest())
    assert page.transactions[:40] == [*found.transactions]
    assert len(page.transactions) == COUNT_MAX
    assert (page.is_complete, found.is_complete) == (False, True)


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"a\x02", b"\x02\x02", b"\x01b", b"\x02\x01"])
async def test_t04_strange_properties_end_no_broker(
    start_broker: StartBroker, producer: Producer, bad: bytes
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        filler = "Q" * len(bad)
        given = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "a", "p": filler, "q": "1"}
        block = wire_block("T", [b"a"], properties={n: [value] for n, value in given.items()})
        block = type(block)(block.records.replace(filler.encode(), bad), block.record_sizes)
        answer = await running.append_block("T", 1, block)
        await prepare(running, "b")
        await advance(running, 31_000)
        asked = [one.transaction_id for one in producer.asked]
        assert asked == (["a", "b"] if answer.status.code == 0 else ["b"])
        for half in producer.halves:
            assert await end(running, half, COMMIT) == 0
    async with start_broker() as running:
        assert len(await bodies(running)) == len(asked)


async def test_t05_what_is_committed_before_the_next_round_is_not_asked_after_again(
    start_broker: StartBroker,
    start_crashed: StartBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leaves a half message and its copy; the producer answers before a round runs."""
    flush = FlushDiskType.ASYNC_FLUSH
    with monkeypatch.context() as patch:
        async with start_crashed(flush) as running:
            await running.create_topic("T")
            half = await prepare(running, "a")
            refuse_writes(patch, errno.ENOSPC, OP_QUEUE)
            running.clock.jump(30_000)
            with pytest.raises(StoreClosedError, match="nothing was stored"):
                await running.broker.services.transactions.checks.check_all()
    async with start_broker(flush) as running:
        assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
        await rounds(running)
        for again in producer.halves:
            await end(running, again, COMMIT, from_check=True)
        assert await bodies(running) == [b"a"]
        assert producer.asked == []


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"12", (12,)),
        (b"12,13,", (12, 13)),
        (b"9" * 18, (10**18 - 1,)),
        # Python reads no number of more than 4,300 digits.
        (b"9" * 19 + b",7," + b"9" * 5_000, (7,)),
        ("\u0661,\u00b2,-1,+2, 3,1_0,".encode() + b"\xff,4", (4,)),
        (b"", ()),
    ],
)
def test_t03_an_op_message_tells_what_is_an_offset(body: bytes, offsets: tuple[int, ...]) -> None:
    record = Record(OP_TOPIC, 0, body, {"TAGS": "d"})
    assert OpMessage.of(record).offsets == offsets


@pytest.mark.parametrize("end_is_first", [True, False])
async def test_t05_a_transaction_that_ends_while_its_question_waits_is_not_committed_again(
    producer: Producer, running: RunningBroker, end_is_first: bool
) -> None:
    """Writes a large block when the check is due, so the check and the end wait."""
    await running.create_topic("T")
    await prepare(running, "asked after before")
    half = await prepare(running, "a")
    services = running.broker.services
    admission = services.flush.group_commit.admission
    running.clock.jump(30_000)
    checking = asyncio.ensure_future(services.transactions.checks.check_all())
    await until(lambda: bool(producer.asked))
    with admission.writing():
        await until(lambda: admission.waiting_count == 1)
        ending = asyncio.ensure_future(end(running, half, COMMIT))
        await until(lambda: admission.waiting_count == 2)
        if end_is_first:
            admission._waiting.reverse()
    assert await ending == ResponseCode.SUCCESS
    await checking
    await rounds(running)
    for again in producer.halves:
        if again.transaction_id == "a":
            await end(running, again, COMMIT, from_check=True)
    assert await bodies(running) == [b"a"]
    assert ("a" in [one.transaction_id for one in producer.asked]) is not end_is_first


async def test_t02_what_was_prepared_before_the_clock_was_set_back_can_be_committed(
    running: RunningBroker,
) -> None:
    hour_ms = 3_600_000
    await running.create_topic("T")
    due_ms = running.clock.now_ms() + 71 * hour_ms
    half = await prepare(running, "a", TIMER_DELIVER_MS=str(due_ms))
    running.clock.jump(-2 * hour_ms)
    status = await ended(running, half, COMMIT)
    assert status.code == ResponseCode.SUCCESS, status.remark
    running.clock.jump(73 * hour_ms)
    await advance(running, 1_000)
    assert await bodies(running) == [b"a"]


@pytest.mark.parametrize("is_asked", [False, True], ids=["at once", "asked"])
@pytest.mark.parametrize("waits", [{}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "90000"}], ids=str)
async def test_t01_the_longest_half_message_that_is_taken_can_be_committed(
    producer: Producer, waits: dict[str, str], running: RunningBroker, *, is_asked: bool
) -> None:
    """Covers checked and unchecked ones: a commit adds properties that let the message wait."""
    await running.create_topic("T")
    given = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "a"} | waits
    for length in range(PROPERTIES_BYTES_MAX - 120, 0, -1):
        named = {name: [value] for name, value in given.items()} | {"x": ["x" * length]}
        answer = await running.append_block("T", 1, wire_block("T", [b"a"], properties=named))
        if answer.status.code == 0:
            half = Half("a", answer.physical_offset, answer.queue_offset)
            if is_asked:
                await rounds(running)
            if producer.asked or not is_asked:
                break
    assert await end(running, half, COMMIT) == ResponseCode.SUCCESS
    if is_asked:
        assert await end(running, producer.halves[0], COMMIT) == ResponseCode.SUCCESS
