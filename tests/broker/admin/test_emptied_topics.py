"""`topic empty`: consumers, commands and queries see no message of before."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.services.receipts.handle import pop_retry_topic
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.blocks import wire_block
from tests.support.broker.pops import (
    GROUP,
    INVISIBLE_MS,
    RETRY_TOPIC,
    REVIVE_MS,
    TOPIC,
    found,
    pass_time,
    pop,
    revived,
    with_messages,
)
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.broker.shell import on_a_terminal, run
from tests.support.store.disk_calls import before_call, failing, holding

MARKS = "*/config/emptiedTopics.json.tmp"
DELETED = "*/config/deletedTopics.json.tmp"


async def empty(running: RunningBroker, topic: str) -> int:
    """Empties a topic; returns the answer's code."""
    request = admin_pb2.EmptyTopicRequest(topic=topic)
    answer: admin_pb2.EmptyTopicResponse = await running.admin.EmptyTopic(request)
    return answer.status.code


@asynccontextmanager
async def with_two_topics(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a broker with one revive queue, a popped message of TOPIC, and one of "U"."""
    async with with_messages(
        start_broker, b"a", system_topics=SystemTopicOptions(revive_queue_nums=1)
    ) as running:
        await running.create_topic("U")
        await running.append("U", 0, b"u")
        await pop(running)
        yield running


async def test_a_reader_of_a_removed_offset_gets_the_first_one(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a", b"b")
    assert await empty(running, "T") == ResponseCode.SUCCESS
    [pulled] = await running.pull(topic="T", queue_id=0, offset=0)
    assert (pulled.status.code, pulled.next_offset) == (ResponseCode.PULL_OFFSET_MOVED, 2)
    await running.append("T", 0, b"c")
    [pulled] = await running.pull(topic="T", queue_id=0, offset=2)
    assert b"c" in pulled.records


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("Unknown", ResponseCode.TOPIC_NOT_EXIST),
        ("TBW102", ResponseCode.INVALID_PARAMETER),
        ("", ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_cannot_be_emptied_is_refused(
    topic: str, code: ResponseCode, running: RunningBroker
) -> None:
    assert await empty(running, topic) == code


async def test_redeliveries_to_groups_that_pop_go_along(running: RunningBroker) -> None:
    retry = pop_retry_topic("g", "T")
    for topic in ("T", retry):
        await running.create_topic(topic, queues=1)
        await running.append(topic, 0, b"a")
    running.broker.services.offsets.committed.commit("g", "T", 0, 1)
    assert await empty(running, "T") == ResponseCode.SUCCESS
    for topic in ("T", retry):
        [pulled] = await running.pull(topic=topic, queue_id=0, offset=0)
        assert pulled.next_offset == 1, topic


async def test_a_redelivery_that_is_not_on_disk_yet_goes_along(start_broker: StartBroker) -> None:
    """Covers SYNC_FLUSH: readers do not see the copy yet."""
    async with with_messages(start_broker, b"a", flush=FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic(RETRY_TOPIC, 1)
        running.broker.services.offsets.committed.commit(GROUP, TOPIC, 0, 1)
        store, retry = running.broker.store, QueueKey(RETRY_TOPIC, 0)
        store.append(retry, wire_block(RETRY_TOPIC, [b"copy"]).parsed())
        assert await empty(running, TOPIC) == ResponseCode.SUCCESS
        await running.append(TOPIC, 0, b"b")
        assert store.range_of(retry) == QueueBounds(1, 1)
        assert found(await pop(running)) == [b"b"]


@pytest.mark.parametrize("saved", [0, 1], ids=["the topic's mark", "the retry topic's mark"])
async def test_a_redelivery_that_falls_due_meanwhile_goes_along(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, saved: int
) -> None:
    async with with_messages(start_broker, b"a", b"b", flush=FlushDiskType.ASYNC_FLUSH) as running:
        await pop(running, count_max=1)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert revived(running) == 1
        await pop(running, count_max=1)
        await pop(running, count_max=1)
        with holding(monkeypatch, "fsync", MARKS, after=saved) as gate:
            emptying = asyncio.ensure_future(empty(running, TOPIC))
            await gate.reached()
            await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert await emptying == ResponseCode.SUCCESS
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == []
        await running.append(TOPIC, 0, b"c")
        assert found(await pop(running)) == [b"c"]


async def test_a_redelivery_that_falls_due_before_the_disk_fails_comes(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_messages(start_broker, b"a", flush=FlushDiskType.ASYNC_FLUSH) as running:
        await pop(running)
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"a"]
        with monkeypatch.context() as patch:
            before_call(patch, "fsync", MARKS, failing(errno.EIO))
            with holding(patch, "fsync", MARKS) as gate:
                emptying = asyncio.ensure_future(empty(running, RETRY_TOPIC))
                await gate.reached()
                await pass_time(running, INVISIBLE_MS + REVIVE_MS)
                assert found(await pop(running)) == []
            assert await emptying == ResponseCode.SYSTEM_ERROR
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"a"]


async def test_redeliveries_of_other_topics_come_while_a_topic_is_emptied(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_two_topics(start_broker) as running:
        await pop(running, topic="U")
        with holding(monkeypatch, "fsync", MARKS) as gate:
            emptying = asyncio.ensure_future(empty(running, TOPIC))
            await gate.reached()
            await pass_time(running, INVISIBLE_MS + REVIVE_MS)
            assert found(await pop(running, topic="U")) == [b"u"]
            assert not emptying.done()
        assert await emptying == ResponseCode.SUCCESS
        await pass_time(running, REVIVE_MS)
        assert found(await pop(running)) == []


async def test_redeliveries_of_other_topics_come_while_a_topic_is_deleted(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_two_topics(start_broker) as running:
        await pass_time(running, INVISIBLE_MS + REVIVE_MS)
        assert found(await pop(running)) == [b"a"]
        await pop(running, topic="U")
        with holding(monkeypatch, "fsync", DELETED) as gate:
            request = admin_pb2.DeleteTopicRequest(topic=TOPIC)
            deleting = asyncio.ensure_future(running.admin.DeleteTopic(request))
            await gate.reached()
            await pass_time(running, INVISIBLE_MS + REVIVE_MS)
            assert found(await pop(running, topic="U")) == [b"u"]
            assert not deleting.done()
        assert (await deleting).status.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_messages_of_before_go_and_those_after_the_answer_stay_over_a_kill(
    start_crashed: StartBroker, flush: FlushDiskType
) -> None:
    """Writers and several calls run at a time; what comes during a call goes or stays."""
    queues = 3
    sent: list[list[int]] = [[] for _ in range(queues)]
    emptied: list[list[int]] = []
    is_over = False

    async def write(running: RunningBroker, queue_id: int) -> None:
        while not is_over:
            answer = await running.append("T", queue_id, b"x", b"y")
            sent[queue_id].append(answer.queue_offset + 1)

    async def until_sent(count: int) -> None:
        await until(lambda: all(len(each) > count for each in sent))

    def counts() -> list[int]:
        return [each[-1] + 1 for each in sent]

    async with start_crashed(flush) as running:
        await running.create_topic("T", queues=queues)
        writers = [asyncio.ensure_future(write(running, number)) for number in range(queues)]
        for goal in (20, 40, 60):
            await until_sent(goal)
            before = counts()
            codes = await asyncio.gather(*(empty(running, "T") for _ in range(3)))
            assert codes == [ResponseCode.SUCCESS] * 3
            bounds = [running.broker.store.range_of(QueueKey("T", n)) for n in range(queues)]
            emptied.append([each.min_offset for each in bounds])
            assert all(one <= other for one, other in zip(before, emptied[-1], strict=True))
        await until_sent(80)
        is_over = True
        await asyncio.gather(*writers)
    async with start_crashed(flush) as running:
        bounds = [running.broker.store.range_of(QueueKey("T", number)) for number in range(queues)]
        assert [each.min_offset for each in bounds] == emptied[-1]
        assert [each.max_offset for each in bounds] == counts()


def test_a_topic_is_emptied_by_the_command_and_stays_so(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "store") as broker:
        broker.create_topic("orders", queues=2, attributes={"message.type": "NORMAL"})
        broker.send("orders", ["a", "b", "c"], keys="k")
        assert [each.text for each in broker.pull("orders", "g", 1)] == ["a"]
        done = run(broker, "topic", "empty", "orders", "--yes")
        assert (done.exit_code, done.stdout) == (0, "removed 3 messages of topic orders\n")
        assert broker.messages("orders") == []
        assert broker.query("orders", "k") == []
        assert broker.lag("orders", "g").total == 0
        assert broker.pull("orders", "g") == []
        broker.send("orders", "d", keys="k")
        broker.kill()
        broker.start()
        [left] = broker.messages("orders")
        assert (left.text, left.queue_offset > 0) == ("d", True)
        assert broker.query("orders", "k") == [left]
        assert broker.pull("orders", "g") == [left]
        assert broker.topic("orders").message_type == "NORMAL"
        done = run(broker, "topic", "empty", "orders", "--json")
        assert json.loads(done.stdout) == {"topic": "orders", "removedMessages": 1}
        broker.empty_topic("orders")
        assert run(broker, "topic", "empty", "orders").stdout.startswith("removed 0 messages")
        refused = run(broker, "topic", "empty", "nowhere")
        assert (refused.exit_code, "does not exist" in refused.stderr) == (1, True)
        broker.send("orders", "e")
    for words in (
        ["store", "check", str(broker.data)],
        ["store", "export", str(broker.data), "--topic", "orders", "--out", f"{tmp_path}/o.arrow"],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    assert "exported 1 message\n" in done.output


def test_the_command_names_what_is_lost_and_asks(
    rocketpy_broker: LocalBroker, rocketpy_topic: str
) -> None:
    rocketpy_broker.send(rocketpy_topic, "a")
    words = ("topic", "empty", rocketpy_topic)
    code, text = on_a_terminal(rocketpy_broker, *words, answer="n\n")
    assert (code, len(rocketpy_broker.messages(rocketpy_topic))) == (1, 1)
    assert "Remove 1 message of topic" in text
    assert on_a_terminal(rocketpy_broker, *words, answer="y\n")[0] == 0
    assert rocketpy_broker.messages(rocketpy_topic) == []
