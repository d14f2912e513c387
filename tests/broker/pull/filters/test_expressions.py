"""Pulls with an expression filter, through real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rocketpy_broker.runtime.scheduler import PASSES, running_scheduler
from rocketpy_broker.services.pull.matching_reader import READ_BYTES
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.queues.readers.candidates import SCAN_UNITS_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.java_hash import java_hash
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.blocks import bodies_of, wire_block
from tests.support.broker.running_broker import LONG_QUEUE, RunningBroker, StartBroker, until

PARSE_FAILED = 23
AGAIN = ResponseCode.PULL_RETRY_IMMEDIATELY
LARGE = {"expression_type": "SQL92", "expression": "size > 5"}


async def append(running: RunningBroker, *sizes: int, body_bytes: int = 0) -> None:
    """Appends messages with the property `size`, and its text as body, filled up with blanks."""
    texts = [str(size) for size in sizes]
    bodies = [text.encode().ljust(body_bytes) for text in texts]
    block = wire_block("T", bodies, properties={"size": texts})
    response = await running.append_block("T", 0, block)
    assert response.status.code == ResponseCode.SUCCESS


def found(responses: Sequence[broker_pb2.PullResponse]) -> list[int]:
    sizes: list[int] = []
    for response in responses:
        if response.record_sizes:
            sizes += map(int, bodies_of(response.records, response.record_sizes))
    return sizes


def told(response: broker_pb2.PullResponse) -> tuple[int, int]:
    return response.status.code, response.next_offset


async def test_c04_a_pull_by_an_expression_gives_only_what_matches(running: RunningBroker) -> None:
    await running.create_topic("T")
    await append(running, 9, 1, 2, 7)
    await running.append("T", 0, b"has no property")
    await append(running, 3, 8, 4)
    [response] = await running.pull(topic="T", **LARGE)
    assert (found([response]), told(response)) == ([9, 7, 8], (ResponseCode.SUCCESS, 8))
    [response] = await running.pull(topic="T", offset=1, offset_end=3, **LARGE)
    assert told(response) == (ResponseCode.SUCCESS, 3)
    assert response.pull_status == broker_pb2.NO_MATCHED_MESSAGE


async def test_c03_a_pull_by_an_expression_of_tags_gives_only_theirs(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for tag in ("TagA", "TagB", "TagC"):
        await running.append_block("T", 0, wire_block("T", [tag[3:].encode()], tags=tag))
    for kind in ("", "TAG"):
        pull = running.pull(topic="T", expression_type=kind, expression=" TagA || TagC ||")
        assert [bodies_of(each.records, each.record_sizes) for each in await pull] == [[b"A", b"C"]]
    for everything in ("", "*"):
        [response] = await running.pull(topic="T", expression=everything)
        assert len(response.record_sizes) == 3 * 4


@pytest.mark.parametrize("response_bytes_max", [1, 600])
async def test_c04_responses_are_bounded_and_their_ends_are_exact(
    response_bytes_max: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    sizes = [9, 1, 7, 2] * 10
    await append(running, *sizes)
    responses = await running.pull(topic="T", response_bytes_max=response_bytes_max, **LARGE)
    assert found(responses) == [9, 7] * 10
    ends = [response.next_offset for response in responses]
    assert ends == sorted(set(ends))
    assert ends[-1] == 40
    assert max(len(response.records) for response in responses) <= max(response_bytes_max, 200)
    for end in ends[:-1]:
        rest = await running.pull(topic="T", offset=end, **LARGE)
        assert found(rest) == [size for size in sizes[end:] if size > 5]


async def test_c04_a_long_range_is_looked_at_in_steps_that_tell_where_they_are(
    start_broker: StartBroker,
) -> None:
    step = SCAN_UNITS_MAX
    async with start_broker(**LONG_QUEUE) as running:
        await running.create_topic("T")
        for _ in range(2):
            await append(running, *[1] * step)
        await append(running, 1, 9, *[1] * (step + 3))
        responses = await running.pull(topic="T", offset_end=3 * step + 2, **LARGE)
        assert [told(response) for response in responses] == [
            (AGAIN, step),
            (AGAIN, 2 * step),
            (ResponseCode.SUCCESS, 3 * step),
            (ResponseCode.SUCCESS, 3 * step + 2),
        ]
        assert found(responses) == [9]


async def test_c04_a_step_consists_of_reads_that_give_way_and_make_one_response(
    start_broker: StartBroker,
) -> None:
    async with start_broker(**LONG_QUEUE) as running:
        await running.create_topic("T")
        for _ in range(5):
            await append(running, 9, *[1] * 31, body_bytes=READ_BYTES // 3)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.ensure_future(count_turns())
        [response] = await running.pull(topic="T", response_bytes_max=1 << 20, **LARGE)
        counting.cancel()
        assert (found([response]), told(response)) == ([9] * 5, (ResponseCode.SUCCESS, 160))
        assert turns > PASSES * 160 // 3


async def test_c05_no_match_up_to_the_end_of_the_queue_is_to_be_asked_for_again(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    await append(running, 1)
    [response] = await running.pull(topic="T", offset_end=5, **LARGE)
    assert told(response) == (AGAIN, 1)
    [response] = await running.pull(topic="T", offset=1, offset_end=5, **LARGE)
    assert told(response) == (ResponseCode.PULL_NOT_FOUND, 1)
    [response] = await running.pull(topic="T", offset=2, **LARGE)
    assert told(response) == (ResponseCode.PULL_OFFSET_MOVED, 1)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_c08_a_held_pull_is_woken_by_a_match_only(
    start_broker: StartBroker, flush: FlushDiskType
) -> None:
    async with start_broker(flush) as running:
        await running.create_topic("T")
        await append(running, 1)
        pull = asyncio.ensure_future(running.pull(topic="T", wait_ms_max=30_000, **LARGE))
        await running.held(1)
        await append(running, 2, 3)
        await running.held(1)
        assert not pull.done()
        await append(running, 9)
        [response] = await pull
        assert (found([response]), response.next_offset) == ([9], 4)
        assert len(running.broker.services.long_polling.calls) == 0


async def test_c08_a_held_pull_tells_at_its_deadline_what_it_has_passed_over(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(running.pull(topic="T", wait_ms_max=30_000, **LARGE))
    await running.held(1)
    await append(running, 1, 2)
    await running.held(1)
    running.clock.advance(30_000)
    [response] = await pull
    assert told(response) == (ResponseCode.PULL_NOT_FOUND, 2)


async def test_c08_a_held_pull_is_answered_when_its_range_is_exhausted(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    pull = asyncio.ensure_future(running.pull(topic="T", offset_end=2, wait_ms_max=30_000, **LARGE))
    await running.held(1)
    await append(running, 1, 2)
    [response] = await pull
    assert told(response) == (ResponseCode.SUCCESS, 2)


async def test_c04_a_match_that_comes_while_a_long_queue_is_looked_at_is_not_missed(
    start_broker: StartBroker,
) -> None:
    async with start_broker(**LONG_QUEUE) as running:
        await running.create_topic("T")
        # Each message takes a read of its own.
        for _ in range(4):
            await append(running, *[1] * 12, body_bytes=READ_BYTES)
        pull = asyncio.ensure_future(running.pull(topic="T", wait_ms_max=30_000, **LARGE))
        await until(lambda: len(running_scheduler()) > 0)
        await append(running, 9)
        assert found(await pull) == [9]


SQL_PLACE = "parse the consumer's subscription failed: SQL92: "


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"expression_type": "SQL92", "expression": "a = 1 garbage"},
            f"{SQL_PLACE}'garbage' is not accepted here, at character 7, after >>> in: a = 1 >>>g",
        ),
        ({"expression_type": "SQL92"}, f"{SQL_PLACE}it is empty"),
        (
            {"expression_type": "sql92", "expression": "a = 1"},
            "the type of the expression is 'sql92', accepted are TAG and SQL92",
        ),
        (
            {"expression_type": "SQL92", "expression": "a = 1", "tags_codes": [1]},
            "the request has tags codes and an expression; send one of them",
        ),
        ({"expression_type": "SQL92", "tags_codes": [1]}, "has tags codes and an expression"),
        (
            {"expression": "TagA", "tags_codes": [java_hash("TagA")]},
            "has tags codes and an expression",
        ),
        ({"expression": " || "}, "TAG: ' || ' names no tag"),
        ({"expression": "x" * 40_000}, "TAG: it has 40000 characters, limit 32767"),
    ],
)
async def test_c01_a_filter_that_cannot_be_understood_is_refused(
    fields: dict[str, Any], remark: str, running: RunningBroker
) -> None:
    await running.create_topic("T")
    [response] = await running.pull(topic="T", **fields)
    assert response.status.code == PARSE_FAILED
    assert remark in response.status.remark
    # The topic is checked first, as in RocketMQ.
    [response] = await running.pull(topic="unknown", **fields)
    assert response.status.code == ResponseCode.TOPIC_NOT_EXIST
    if "tags_codes" not in fields:
        checked = await running.data.CheckFilter(broker_pb2.CheckFilterRequest(**fields))
        assert checked.status.code == PARSE_FAILED
        assert remark in checked.status.remark


@pytest.mark.parametrize("fields", [{}, LARGE, {"expression": "TagA||TagB"}])
async def test_c04_a_filter_that_is_fine_is_said_to_be(
    fields: dict[str, str], running: RunningBroker
) -> None:
    checked = await running.data.CheckFilter(broker_pb2.CheckFilterRequest(**fields))
    assert checked.status.code == ResponseCode.SUCCESS
