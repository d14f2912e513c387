"""Prepared blocks and CommitBatch through real gRPC: who sees what, when, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.services.batch_log import BATCHES_QUEUE
from rocketpy_broker.store import prepared
from rocketpy_broker.store.flush import FlushDiskType
from rocketpy_proto.record import encode_offset_message_id
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.broker.batches import TOKEN, WRITER, bodies, commit, prepare
from tests.broker.conftest import RunningBroker, StartBroker

Range = broker_pb2.PreparedRange
COMMITTED, ALREADY = broker_pb2.COMMITTED, broker_pb2.ALREADY_COMMITTED


def decisions(running: RunningBroker) -> int:
    """How many records the batches' queue has: none for what was refused."""
    return running.broker.store.next_offset(BATCHES_QUEUE)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_s08_nobody_sees_a_batch_before_its_commit_and_everybody_all_of_it_after(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        first = await prepare(running, 0, b"a", b"b")
        other = await prepare(running, 1, b"x")
        last = await prepare(running, 0, b"c")
        await running.append("T", 0, b"plain")
        assert await bodies(running, 0) == [b"plain"]
        assert await bodies(running, 1) == []
        answer = await commit(running, 0, first, other, last)
        assert answer.status.code == ResponseCode.SUCCESS
        assert (answer.outcome, answer.batch_id, answer.record_count) == (COMMITTED, 0, 4)
        assert await bodies(running, 0) == [b"plain", b"a", b"b", b"c"]
        assert await bodies(running, 1) == [b"x"]


async def test_s08_a_prepared_message_is_neither_found_by_key_nor_by_id_and_shows_once_after(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        wanted = await prepare(running, 0, b"k")
        message_id = encode_offset_message_id(
            running.broker.store.store_host, wanted.physical_offset
        )
        by_key = admin_pb2.QueryMessageRequest(topic="T", key="k")
        by_id = admin_pb2.ViewMessageRequest(offset_msg_id=message_id)
        found = await running.admin.QueryMessage(by_key)
        assert not found.records
        assert (await running.admin.ViewMessage(by_id)).status.code != ResponseCode.SUCCESS
        await commit(running, 0, wanted)
        found = await running.admin.QueryMessage(by_key)
        assert len(found.record_sizes) == 4
        assert (await running.admin.ViewMessage(by_id)).status.code != ResponseCode.SUCCESS


async def test_s08_ranges_are_stored_in_the_order_of_the_request_and_block_by_block(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "PART_BYTES", 300)
    async with start_broker() as running:
        await running.create_topic("T")
        names = [[b"%d-%d" % (block, number) for number in range(20)] for block in range(3)]
        ranges = [await prepare(running, 0, *block) for block in names]
        answer = await commit(running, 5, ranges[2], ranges[0], ranges[1])
        assert answer.record_count == 60
        assert await bodies(running) == names[2] + names[0] + names[1]


async def test_s08_a_batch_or_an_older_one_again_is_answered_and_never_shows(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await commit(running, 7, await prepare(running, 0, b"a"))
        for batch_id in (7, 6, 0):
            late = await prepare(running, 0, b"late", token=5)
            answer = await commit(running, batch_id, late, token=5)
            assert answer.status.code == ResponseCode.SUCCESS
            assert (answer.outcome, answer.batch_id, answer.record_count) == (ALREADY, 7, 0)
        answer = await commit(running, 7, await prepare(running, 0, b"b"), writer_id="another")
        assert answer.outcome == COMMITTED
        assert await bodies(running) == [b"a", b"b"]


async def test_s08_a_batch_without_messages_counts_as_committed(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        answer = await commit(running, 3)
        assert (answer.outcome, answer.record_count) == (COMMITTED, 0)
        late = await prepare(running, 0, b"late")
        assert (await commit(running, 3, late)).outcome == ALREADY
    async with start_broker() as running:
        assert (await commit(running, 3)).outcome == ALREADY
        assert await bodies(running) == []


def altered(**fields: object) -> Callable[[Range], Range]:
    """The range with some fields changed, by adding numbers or setting texts."""

    def alter(wanted: Range) -> Range:
        changed = Range()
        changed.CopyFrom(wanted)
        for name, value in fields.items():
            is_number = isinstance(value, int)
            setattr(changed, name, getattr(wanted, name) + value if is_number else value)
        return changed

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        altered(physical_offset=1),
        altered(physical_offset=-1),
        altered(physical_offset=-(1 << 40)),
        altered(physical_offset=1 << 40),
        altered(length=1),
        altered(length=-1),
        altered(length=1 << 40),
        altered(length=-(1 << 20)),
        altered(record_count=1),
        altered(record_count=-2),
        altered(queue_id=1),
        altered(topic="Other"),
    ],
)
async def test_s08_a_range_that_is_not_as_it_was_prepared_is_refused_and_nothing_done(
    start_broker: StartBroker, alter: Callable[[Range], Range]
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await running.create_topic("Other")
        good = await prepare(running, 0, b"good")
        wanted = await prepare(running, 0, b"a", b"b")
        await prepare(running, 0, b"behind it")
        answer = await commit(running, 0, good, alter(wanted))
        assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL, answer
        assert decisions(running) == 0
        assert await bodies(running) == []
        # The same batch, asked for rightly, is none that was before.
        assert (await commit(running, 0, good, wanted)).outcome == COMMITTED
        assert await bodies(running) == [b"good", b"a", b"b"]


async def test_s08_foreign_plain_and_overlapping_records_are_refused(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        wanted = await prepare(running, 0, b"a")
        foreign = await prepare(running, 0, b"foreign", token=1)
        plain = await running.append("T", 0, b"plain")
        plain_range = Range(
            topic="T",
            physical_offset=plain.physical_offset,
            length=running.broker.store.positions().log_end - plain.physical_offset,
            record_count=1,
        )
        for ranges in ([wanted, foreign], [plain_range], [wanted, wanted]):
            answer = await commit(running, 0, *ranges)
            assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
        assert "overlaps" in answer.status.remark
        assert (await commit(running, 0, wanted, token=0)).status.code != ResponseCode.SUCCESS
        assert decisions(running) == 0
        assert await bodies(running) == [b"plain"]


@pytest.mark.parametrize(("writer_id", "batch_id"), [("", 0), ("w" * 256, 0), ("w", -1)])
async def test_s08_a_writer_or_batch_that_cannot_be_is_refused(
    start_broker: StartBroker, writer_id: str, batch_id: int
) -> None:
    async with start_broker() as running:
        answer = await commit(running, batch_id, writer_id=writer_id)
        assert answer.status.code == ResponseCode.INVALID_PARAMETER


async def test_s08_of_many_requests_for_one_batch_one_commits_it(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        attempts = [await prepare(running, 0, b"%d" % token, token=token) for token in range(1, 9)]
        asked = [
            commit(running, 0, wanted, token=token) for token, wanted in enumerate(attempts, 1)
        ]
        answers = await asyncio.gather(*asked)
        assert [answer.outcome for answer in answers].count(COMMITTED) == 1
        assert len(await bodies(running)) == 1


async def test_s08_batches_of_many_writers_at_once_keep_each_its_order(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "PART_BYTES", 200)
    async with start_broker() as running:
        await running.create_topic("T")

        async def write(name: str) -> None:
            for batch_id in range(3):
                messages = [f"{name}-{batch_id}-{number}".encode() for number in range(10)]
                wanted = await prepare(running, 0, *messages)
                await commit(running, batch_id, wanted, writer_id=name)

        names = [f"w{number}" for number in range(4)]
        await asyncio.gather(*[write(name) for name in names])
        found = await bodies(running)
        for name in names:
            expected = [f"{name}-{b}-{n}".encode() for b in range(3) for n in range(10)]
            assert [body for body in found if body.startswith(name.encode())] == expected


async def test_s08_blocks_of_a_deleted_topic_are_refused_even_if_it_was_made_again(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        for topic in ("T", "Gone"):
            await running.create_topic(topic)
        ranges = [await prepare(running, 0, b"a"), await prepare(running, 0, b"b", topic="Gone")]
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="Gone"))
        answer = await commit(running, 0, *ranges)
        assert answer.status.code == ResponseCode.TOPIC_NOT_EXIST
        await running.create_topic("Gone")
        answer = await commit(running, 0, *ranges)
        assert answer.status.code == ResponseCode.MESSAGE_ILLEGAL
        assert "deleted" in answer.status.remark
        assert decisions(running) == 0


async def test_b02_the_batches_topic_is_neither_listed_nor_made_nor_written_by_clients(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await commit(running, 0, await prepare(running, 0, b"a"))
        topic = BATCHES_QUEUE.topic
        for include_system in (False, True):
            request = admin_pb2.ListTopicsRequest(include_system=include_system)
            listed = await running.admin.ListTopics(request)
            assert topic not in [config.topic for config in listed.configs]
        assert await running.create_topic(topic) != ResponseCode.SUCCESS
        assert (await running.append(topic, 0, b"x")).status.code != ResponseCode.SUCCESS
        [pulled] = await running.pull(topic=topic, queue_id=0)
        assert pulled.status.code != ResponseCode.SUCCESS
        await running.admin.CleanUnusedTopics(admin_pb2.CleanUnusedTopicsRequest())
        assert decisions(running) == 2


async def test_s08_the_ledger_survives_a_clean_stop_and_the_loss_of_its_log(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await commit(running, 4, await prepare(running, 0, b"a"))
    for round_ in range(2):
        async with start_broker() as running:
            late = await prepare(running, 0, b"late", token=9)
            assert (await commit(running, 4, late, token=9)).outcome == ALREADY
            assert await bodies(running) == [b"a"]
        if round_ == 0:
            for path in (tmp_path / "consumequeue" / BATCHES_QUEUE.topic / "0").iterdir():
                path.unlink()


async def test_s08_a_broken_ledger_is_made_anew_from_the_log(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        await commit(running, 4, await prepare(running, 0, b"a"))
    for path in (tmp_path / "config").glob("batchLedger.json*"):
        path.unlink()
    async with start_broker() as running:
        late = await prepare(running, 0, b"late")
        assert (await commit(running, 4, late, token=TOKEN)).outcome == ALREADY
        assert (await commit(running, 5, late, writer_id=WRITER)).outcome == COMMITTED
        assert await bodies(running) == [b"a", b"late"]
