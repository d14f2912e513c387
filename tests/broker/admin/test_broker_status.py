"""Status of a broker and of a topic's queues, through real gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.clients.group_clients import consumer, heartbeat, listening
from tests.support.broker.running_broker import RunningBroker, StartBroker


async def status(running: RunningBroker) -> admin_pb2.GetBrokerStatusResponse:
    response: admin_pb2.GetBrokerStatusResponse = await running.admin.GetBrokerStatus(
        admin_pb2.GetBrokerStatusRequest()
    )
    assert response.status.code == 0
    return response


async def queues(running: RunningBroker, **fields: Any) -> admin_pb2.ListTopicQueuesResponse:
    response: admin_pb2.ListTopicQueuesResponse = await running.admin.ListTopicQueues(
        admin_pb2.ListTopicQueuesRequest(**{"topic": "T", **fields})
    )
    return response


async def test_n03_a_broker_tells_how_it_does(tmp_path: Path, running: RunningBroker) -> None:
    before = await status(running)
    running.clock.advance(7_000)
    await running.create_topic("T", queues=2)
    await running.append("T", 0, b"1")
    await heartbeat(running, "c1", consumer("g", "T"), producers=["p"])
    held = asyncio.ensure_future(running.pull(topic="T", queue_id=1, wait_ms_max=60_000))
    await running.held(1)
    async with listening(running, "c1"):
        after = await status(running)
    held.cancel()
    assert (after.uptime_ms, after.start_timestamp_ms) == (7_000, 1_700_000_000_000)
    assert after.topic_count - before.topic_count == 2
    assert after.consumer_group_count - before.consumer_group_count == 1
    assert (after.queue_count, after.client_count, after.listener_count) == (1, 1, 1)
    assert (after.held_call_count, after.connection_count) == (1, 1)
    assert 0 < after.disk_bytes_free < after.disk_bytes
    assert not after.recovered
    found = {each.role: each.path for each in after.directories}
    assert found["store"] == str(tmp_path)
    assert found["commit log"] == str(tmp_path / "commitlog")


async def test_n03_a_broker_tells_what_its_start_found(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    async with start_broker() as running:
        await running.create_topic("T", queues=1)
        await running.append("T", 0, b"1")
    (tmp_path / "abort").touch()
    quarantine = tmp_path / "rocketpy" / "quarantine"
    quarantine.mkdir(exist_ok=True)
    (quarantine / "00000000000000000000.damaged-00000000").touch()
    async with start_broker() as running:
        found = await status(running)
        assert (found.recovered, found.quarantined_file_count) == (True, 1)
        assert (found.recovery_damage_count, found.recovery_bytes_dropped) == (0, 0)


async def test_n03_a_topic_s_queues_tell_when_their_last_messages_came(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=3)
    await running.append("T", 1, b"1", b"2")
    running.clock.advance(1_000)
    await running.append("T", 1, b"3")
    found = [
        (each.queue_id, each.min_offset, each.max_offset, each.last_store_timestamp_ms)
        for each in (await queues(running)).queues
    ]
    assert found == [(0, 0, 0, -1), (1, 0, 3, running.clock.now_ms()), (2, 0, 0, -1)]
    page = await queues(running, queue_id=1, count_max=1)
    assert ([each.queue_id for each in page.queues], page.has_more) == ([1], True)
    page = await queues(running, queue_id=2, count_max=1)
    assert ([each.queue_id for each in page.queues], page.has_more) == ([2], False)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": ""}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "t" * 10_000}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 3}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"count_max": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_n03_a_bad_page_of_queues_is_refused(
    fields: dict[str, Any], code: int, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=3)
    assert (await queues(running, **fields)).status.code == code


async def test_n03_topics_come_in_pages_if_asked_for(running: RunningBroker) -> None:
    for name in ("A", "B", "C"):
        await running.create_topic(name, queues=1)

    async def page(**fields: Any) -> tuple[list[str], bool]:
        response = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(**fields))
        return [each.topic for each in response.configs], response.has_more

    assert await page() == (["A", "B", "C"], False)
    assert await page(count_max=2) == (["A", "B"], True)
    assert await page(count_max=2, after="B") == (["C"], False)
    assert await page(count_max=2, after="AA") == (["B", "C"], False)
    assert await page(count_max=2, after="Z") == ([], False)
    refused = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(count_max=-1))
    assert refused.status.code == ResponseCode.INVALID_PARAMETER


async def test_topics_are_listed_by_the_start_of_their_name(running: RunningBroker) -> None:
    for name in ("A", "AB", "ABC", "B", "a"):
        await running.create_topic(name, queues=1)

    async def page(**fields: Any) -> tuple[list[str], bool]:
        response = await running.admin.ListTopics(admin_pb2.ListTopicsRequest(**fields))
        return [each.topic for each in response.configs], response.has_more

    assert await page(prefix="A") == (["A", "AB", "ABC"], False)
    assert await page(prefix="AB") == (["AB", "ABC"], False)
    assert await page(prefix="A", count_max=2) == (["A", "AB"], True)
    assert await page(prefix="A", count_max=2, after="AB") == (["ABC"], False)
    assert await page(prefix="AB", after="A") == (["AB", "ABC"], False)
    assert await page(prefix="A", after="B") == ([], False)
    assert await page(prefix="B", count_max=1, after="A") == (["B"], False)
    assert await page(prefix="Z") == ([], False)
