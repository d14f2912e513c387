"""Size limits of one answer to a group's pull, for hot and cold data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from rocketpy_broker.config import Limits, TransferLimits
from rocketpy_proto.rocketpy.v1 import broker_pb2
from tests.support.broker.running_broker import RunningBroker, StartBroker

KIB = 1 << 10


async def fill(running: RunningBroker, body_bytes: int, count: int) -> None:
    await running.create_topic("T")
    await running.append("T", 0, *[bytes(body_bytes)] * count)


def counts(responses: Sequence[broker_pb2.PullResponse]) -> list[int]:
    return [len(response.record_sizes) // 4 for response in responses]


async def group_pull(running: RunningBroker, **fields: object) -> list[int]:
    responses = await running.pull(**{"topic": "T", "consumer_group": "g", **fields})
    assert sum(counts(responses)) > 0
    return counts(responses)


# All data counts as on disk.
COLD = {"access_message_in_memory_max_ratio": 0}


def memory(monkeypatch: pytest.MonkeyPatch, size: int) -> dict[str, int]:
    """Gives the machine that memory, in bytes; returns a broker's settings that use all of it."""
    system = os.sysconf
    known = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": size}
    monkeypatch.setattr(os, "sysconf", lambda name: known.get(name) or system(name))
    return {"access_message_in_memory_max_ratio": 100}


FILTERS: list[dict[str, Any]] = [
    {},
    {"expression_type": "SQL92", "expression": "TAGS IS NULL"},
]


@pytest.mark.parametrize("wanted", FILTERS)
async def test_s12_hot_answers_have_32_messages_and_cold_ones_8(
    start_broker: StartBroker, wanted: dict[str, object]
) -> None:
    async with start_broker() as running:
        await fill(running, 100, 70)
        assert await group_pull(running, **wanted) == [32, 32, 6]
    async with start_broker(**COLD) as running:
        assert await group_pull(running, **wanted) == [8] * 8 + [6]


@pytest.mark.parametrize("wanted", FILTERS)
async def test_s12_hot_answers_have_256_kib_and_cold_ones_64(
    start_broker: StartBroker, wanted: dict[str, object]
) -> None:
    async with start_broker() as running:
        await fill(running, 30 * KIB, 20)
        assert await group_pull(running, **wanted) == [8, 8, 4]
    async with start_broker(**COLD) as running:
        assert await group_pull(running, **wanted) == [2] * 10


async def test_s12_the_first_message_is_given_whatever_its_size(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        await fill(running, 300 * KIB, 2)
        assert await group_pull(running) == [1, 1]
    async with start_broker(**COLD) as running:
        assert await group_pull(running) == [1, 1]


async def test_s12_messages_go_by_their_own_limits_where_cold_data_ends(
    monkeypatch: pytest.MonkeyPatch, start_broker: StartBroker
) -> None:
    async with start_broker() as running:
        await fill(running, 100, 70)
        size = running.broker.store.positions().log_end // 70
    # The last 64 are hot: after 6 cold ones an answer goes on with hot ones.
    async with start_broker(**memory(monkeypatch, 64 * size)) as running:
        responses = await running.pull(topic="T", consumer_group="g")
        assert counts(responses) == [32, 32, 6]
    # The last 58 are hot: the first answer ends at its eighth, cold message.
    async with start_broker(**memory(monkeypatch, 58 * size)) as running:
        assert await group_pull(running) == [8, 32, 30]


@pytest.mark.parametrize(
    "fields", [{"consumer_group": ""}, {"response_bytes_max": 1 << 20}], ids=["plain", "sized"]
)
async def test_s12_plain_pulls_and_those_that_name_a_size_go_by_bytes_alone(
    start_broker: StartBroker, fields: dict[str, object]
) -> None:
    async with start_broker(**COLD) as running:
        await fill(running, 100, 700)
        assert await group_pull(running, **fields) == [700]


async def test_s12_limits_and_what_is_cold_can_be_configured(start_broker: StartBroker) -> None:
    limits = Limits(transfer=TransferLimits(5, 1 << 20, 3, 1 << 20))
    async with start_broker(limits=limits) as running:
        await fill(running, 100, 7)
        assert await group_pull(running) == [5, 2]
    async with start_broker(limits=limits, **COLD) as running:
        assert await group_pull(running) == [3, 3, 1]


async def test_s12_the_broker_to_pull_from_goes_by_the_last_message_that_was_looked_at(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(slave_read_enable=True) as running:
        await fill(running, 100, 20)
        size = running.broker.store.positions().log_end // 20
    settings = memory(monkeypatch, 15 * size)
    async with start_broker(slave_read_enable=True, **settings) as running:
        filters: list[dict[str, Any]] = [*FILTERS, {"expression": "none"}]
        for wanted in filters:
            [answer] = await running.pull(topic="T", offset_end=10, **wanted)
            assert answer.suggested_broker_id == 0
            [answer] = await running.pull(topic="T", offset_end=4, **wanted)
            assert answer.suggested_broker_id == 1
