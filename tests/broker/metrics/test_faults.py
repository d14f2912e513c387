"""Faults in listeners of metrics, which reach neither clients nor the broker."""

from __future__ import annotations

import json
from inspect import getmembers, isfunction, signature
from pathlib import Path
from typing import NoReturn

import pytest

from rocketpy_broker.hooks import Hook, HookAbortError, SendContext
from rocketpy_broker.services.observability.counters.event_counter import OTHERS, EventCounter
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.broker.metrics.scrape import scrape
from tests.broker.metrics.test_messages import commit, update_group
from tests.support.broker.installed_hooks import installed
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.broker.transactions import COMMIT, ROLLBACK, end, prepare

LISTENERS = [
    name
    for name, _ in getmembers(EventCounter, isfunction)
    if not name.startswith("_") and name != "pulled_offset"
]


class Unusable:
    """A value that no listener can count: it has no attribute, number, hash or equal."""

    def __eq__(self, _: object) -> NoReturn:
        raise TypeError

    def __hash__(self) -> NoReturn:
        raise TypeError


class StrangeCode(Hook):
    """A hook that refuses sends with a code of RocketMQ's that this broker has not."""

    hook_name = "strange"

    def before_send(self, context: SendContext) -> None:
        raise HookAbortError("not here", 9_999)  # type: ignore[arg-type]


async def test_what_listeners_raise_reaches_neither_clients_nor_the_broker(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH, http_port=0) as running:
        await running.create_topic("pulled")
        await running.append("pulled", 0, b"1")
        await running.pull(topic="pulled", queue_id=0, offset=0, consumer_group="g")
        counter = running.broker.services.statistics.counter
        for name in LISTENERS * 2:
            listener = getattr(counter, name)
            listener(*[Unusable()] * len(signature(listener).parameters))
        await use(running)
        found = await scrape(running)
    # An append is counted as a call.
    assert counter.failed == {*LISTENERS} - {"appended"}
    assert found.value("rocketpy_uncounted_events_total") == 2 * len(LISTENERS)
    lines = [each for each in caplog.records if "could not count" in each.message]
    assert len(lines) == len(counter.failed)


async def use(running: RunningBroker) -> None:
    """Triggers most listeners; asserts that every answer is as it should be."""
    assert await running.create_topic("T") == 0
    assert await update_group(running, "g") == 0
    assert (await running.append("T", 0, b"1")).status.code == 0
    (answer,) = await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
    assert answer.record_sizes
    await commit(running, "g", 1)
    assert await end(running, await prepare(running, "kept"), COMMIT) == 0
    assert await end(running, await prepare(running, "dropped"), ROLLBACK) == 0
    deleted = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert deleted.status.code == 0


async def test_an_answer_with_a_code_that_nobody_knows_is_given_and_counted(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    with installed(tmp_path / "hooks", strange=f"{__name__}:StrangeCode"):
        async with start_broker(http_port=0) as running:
            await running.create_topic("T")
            assert (await running.append("T", 0, b"1")).status.code == 9_999
            found = await scrape(running)
    counted = "rocketmq_rpc_latency_milliseconds_count"
    assert found.sum(counted, request_code="append", response_code="other") == 1
    assert found.value("rocketpy_uncounted_events_total") == 0


async def test_names_that_are_no_unicode_are_shown_as_far_as_they_can_be(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    table = {"offsetTable": {"T@odd\ud800": {"0": 0}}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps(table), encoding="utf-8")
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        await running.append("T", 0, b"1")
        found = await scrape(running)
    assert found.sum("rocketmq_consumer_lag_messages", consumer_group="odd\\ud800") == 1


async def test_what_comes_to_a_topic_that_is_gone_takes_no_other_ones_place(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await running.create_topic("T")
        half = await prepare(running, "dropped")
        await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
        assert await end(running, half, ROLLBACK) == 0
        found = await scrape(running)
    assert found.value("rocketmq_rollback_messages_total", topic=OTHERS) == 1
    assert not found.sum("rocketmq_rollback_messages_total", topic="T")
