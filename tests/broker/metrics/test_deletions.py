"""Topics and groups that are deleted and recreated, also while a snapshot is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from rocketpy_broker.services.observability.metrics.events import EventMetrics
from rocketpy_broker.services.observability.metrics.families import MetricSource, Series
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2
from tests.broker.metrics.scrape import group_lags, metrics_of, scrape
from tests.broker.metrics.test_messages import commit, update_group
from tests.support.broker.running_broker import RunningBroker, StartBroker

LAG = {"consumer_group": "g", "topic": "T", "is_retry": "false", "is_system": "false"}


async def delete_topic(running: RunningBroker, topic: str = "T") -> None:
    response = await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic=topic))
    assert response.status.code == 0, response.status.remark


async def delete_group(running: RunningBroker, group: str = "g") -> None:
    request = groups_pb2.DeleteGroupRequest(consumer_group=group)
    response = await running.groups.DeleteGroup(request)
    assert response.status.code == 0, response.status.remark


async def fill(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"1", b"2", b"3")


async def test_g01_lag_in_a_topic_that_is_made_again_is_of_its_own_messages(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await fill(running)
        await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
        await commit(running, "g", 0)
        before = await scrape(running)
        await delete_topic(running)
        running.clock.advance(100_000)
        await fill(running)
        await commit(running, "g", 0)
        again = await scrape(running)
    assert before.value("rocketmq_consumer_inflight_messages", **LAG) == 3
    assert again.value("rocketmq_consumer_lag_messages", **LAG) == 3
    assert again.value("rocketmq_consumer_inflight_messages", **LAG) == 0
    assert again.value("rocketmq_consumer_lag_latency_milliseconds", **LAG) == 1_001


async def test_g01_a_group_that_is_made_again_has_pulled_nothing(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        await fill(running)
        assert await update_group(running, "g") == 0
        await running.pull(topic="T", queue_id=0, offset=0, consumer_group="g")
        await commit(running, "g", 0)
        await delete_group(running)
        gone = await scrape(running)
        assert await update_group(running, "g") == 0
        await commit(running, "g", 1)
        again = await scrape(running)
    assert not gone.samples.get("rocketmq_consumer_lag_messages")
    assert again.value("rocketmq_consumer_ready_messages", **LAG) == 2


@dataclass
class Interrupted:
    """A source with an act after its first series of a name, as in a slot between two series."""

    source: MetricSource
    name: str | None
    act: Callable[[], Awaitable[None]]

    async def series(self) -> AsyncIterator[Series | None]:
        acts = [self.act]
        async for series in self.source.series():
            yield series
            if (series and series[0]) == self.name and acts:
                await acts.pop()()


@pytest.mark.parametrize("delete", [delete_topic, delete_group])
async def test_g01_who_is_deleted_while_a_snapshot_is_taken_is_not_told_as_far_behind(
    start_broker: StartBroker, delete: Callable[[RunningBroker], Awaitable[None]]
) -> None:
    async with start_broker(http_port=0) as running:
        await fill(running)
        assert await update_group(running, "g") == 0
        await commit(running, "g", 3)
        lags = group_lags(running)
        # None is the place for a slot before a queue.
        source = Interrupted(lags, None, lambda: delete(running))
        found = await metrics_of(source, running.clock)
    assert not found.samples.get("rocketmq_consumer_lag_messages")


async def test_s13_a_row_that_begins_anew_while_a_snapshot_is_taken_is_told_once(
    start_broker: StartBroker,
) -> None:
    async with start_broker(http_port=0) as running:
        for topic in ("T", "U"):
            await running.create_topic(topic, queues=1)
            await running.append(topic, 0, b"1")

        async def renew() -> None:
            # The row of T goes where that of U was.
            for topic in ("T", "U"):
                await delete_topic(running, topic)
            await fill(running)

        services = running.broker.services
        events = EventMetrics(services.statistics.counter, services.topics)
        source = Interrupted(events, "rocketmq_messages_in", renew)
        found = await metrics_of(source, running.clock)
    assert found.sum("rocketmq_messages_in_total", topic="T") in {1, 3}
