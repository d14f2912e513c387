"""Statistics through gRPC: the sums of sends, pulls and messages that are sent back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, groups_pb2
from tests.support.broker.event_loop import passes
from tests.support.broker.retries import Meant, answered, records, send
from tests.support.broker.running_broker import RunningBroker
from tests.support.broker.transactions import COMMIT, end, prepare
from tests.support.store.disk_calls import DiskCall, before_call

MINUTE_MS, SAMPLE_MS = 60_000, 10_000


async def statistics(running: RunningBroker, **fields: Any) -> dict[str, admin_pb2.StatisticsItem]:
    """Returns items by name and key."""
    request = admin_pb2.GetStatisticsRequest(**fields)
    response: admin_pb2.GetStatisticsResponse = await running.admin.GetStatistics(request)
    assert (response.status.code, response.next_cursor) == (ResponseCode.SUCCESS, 0)
    return {f"{item.name} {item.key}": item for item in response.items}


async def values(running: RunningBroker, *names: str, **fields: Any) -> dict[str, int]:
    found = await statistics(running, names=names, include_system=True, **fields)
    return {name: item.value for name, item in found.items()}


async def store_statistics(
    running: RunningBroker, **fields: Any
) -> admin_pb2.GetStoreStatisticsResponse:
    request = admin_pb2.GetStoreStatisticsRequest(**fields)
    response: admin_pb2.GetStoreStatisticsResponse = await running.admin.GetStoreStatistics(request)
    return response


async def test_s13_sends_and_pulls_are_counted_once_a_block(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a", b"b", b"c")
    [pulled] = await running.pull(topic="T", queue_id=0, consumer_group="g")
    await running.pull(topic="T", queue_id=0)
    running.clock.advance(SAMPLE_MS)
    await passes(40)
    found = await statistics(running)
    put, got = found["TOPIC_PUT_NUMS T"], found["GROUP_GET_NUMS T@g"]
    assert (put.value, put.times, put.minute.sum) == (3, 1, 3)
    assert put.minute.tps == pytest.approx(0.3)
    assert put.minute.avgpt == 3.0
    assert (got.value, got.minute.sum) == (3, 3)
    size = len(pulled.records)
    assert found["TOPIC_PUT_SIZE T"].value == found["GROUP_GET_SIZE T@g"].value == size
    assert found["BROKER_GET_NUMS DefaultCluster"].value == 6
    assert found["BROKER_PUT_NUMS DefaultCluster"].value == 3


async def test_s13_a_pull_tells_how_far_its_group_is_behind(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    first, second = await running.append("T", 0, b"a"), await running.append("T", 0, b"bc")
    running.clock.advance(700)
    last = await running.append("T", 0, b"d")
    names = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")

    async def behind(offset: int, offset_end: int) -> list[int]:
        await running.pull(topic="T", offset=offset, offset_end=offset_end, consumer_group="g")
        return [*(await values(running, *names)).values()]

    log_end = (await store_statistics(running)).log_end_offset
    assert await behind(0, 1) == [log_end - first.physical_offset, 700]
    assert await behind(0, 2) == [log_end - second.physical_offset, 700]
    # What was read last is the queue's last message.
    assert await behind(1, 3) == [log_end - last.physical_offset, 0]
    # Where nothing is, nothing is read.
    assert await behind(3, 4) == [log_end - last.physical_offset, 0]


async def test_s13_a_pull_that_finds_nothing_it_wants_tells_how_far_it_has_looked(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=1)
    answer = await running.append("T", 0, b"a")
    await running.pull(topic="T", consumer_group="g", tags_codes=[12345])
    assert await values(running, "GROUP_GET_FALL_SIZE", "GROUP_GET_NUMS") == {
        "GROUP_GET_FALL_SIZE 0@T@g": (await store_statistics(running)).log_end_offset
        - answer.physical_offset
    }


def slow_reads(monkeypatch: pytest.MonkeyPatch, running: RunningBroker, took_ms: int) -> None:
    """Lets the first read of a queue take that long."""
    times_ms = [took_ms]

    def read(_call: DiskCall) -> None:
        if times_ms:
            running.clock.advance(times_ms.pop())

    before_call(monkeypatch, "pread", "*/consumequeue/*", read)


async def test_s13_the_latency_of_a_pull_is_without_the_time_that_it_was_held(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=1)
    pull = asyncio.ensure_future(
        running.pull(topic="T", consumer_group="g", wait_ms_max=30_000, offset_end=1)
    )
    await running.held(1)
    running.clock.advance(20_000)
    slow_reads(monkeypatch, running, 40)
    await running.append("T", 0, b"a")
    await pull
    assert await values(running, "GROUP_GET_LATENCY") == {"GROUP_GET_LATENCY T@g": 40}
    assert (await store_statistics(running)).get_latency_max_ms == 40


async def test_s13_s11_the_store_tells_the_longest_look_at_a_queue(
    monkeypatch: pytest.MonkeyPatch, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a")
    slow_reads(monkeypatch, running, 25)
    await running.pull(topic="T", offset_end=1)
    assert (await store_statistics(running)).get_latency_max_ms == 25


async def test_s13_g01_heartbeats_count_as_registrations(running: RunningBroker) -> None:
    for _ in range(2):
        await running.groups.Heartbeat(
            groups_pb2.HeartbeatRequest(client_id="c", producer_groups=["p", "q"])
        )
    found = await statistics(running, names=["PRODUCER_REGISTER_TIME"])
    [item] = found.values()
    assert (item.key, item.times) == ("DefaultCluster", 4)


async def test_s13_a_group_that_is_deleted_has_no_statistics_any_more(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a")
    for group in ("g", "h"):
        await running.pull(topic="T", queue_id=0, consumer_group=group)
    await running.broker.services.groups.configs.delete("g")
    found = await statistics(running, names=["GROUP_GET_NUMS", "GROUP_GET_FALL_SIZE"])
    assert set(found) == {"GROUP_GET_NUMS T@h", "GROUP_GET_FALL_SIZE 0@T@h"}


async def test_s13_a_refused_send_counts_as_failed_alone(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    assert (await running.append("T", 7, b"x")).status.code == ResponseCode.INVALID_PARAMETER
    assert await values(running) == {}


async def test_s13_d03_a_delayed_message_counts_where_it_waits_and_where_it_goes(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=1)
    await send(running, b"later", DELAY="1")
    names = ("TOPIC_PUT_NUMS", "BROKER_PUT_NUMS", "QUEUE_PUT_NUMS")
    waiting = {
        "TOPIC_PUT_NUMS SCHEDULE_TOPIC_XXXX": 1,
        "QUEUE_PUT_NUMS SCHEDULE_TOPIC_XXXX@0": 1,
        "BROKER_PUT_NUMS DefaultCluster": 1,
    }
    assert await values(running, *names) == waiting
    running.clock.advance(1_000)
    await passes(40)
    assert await values(running, *names) == {
        **waiting,
        "TOPIC_PUT_NUMS T": 1,
        "BROKER_PUT_NUMS DefaultCluster": 2,
    }
    assert await values(running, "QUEUE_GET_NUMS", "GROUP_GET_NUMS") == {
        "QUEUE_GET_NUMS SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER": 1,
        "GROUP_GET_NUMS SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER": 1,
    }


async def test_s13_t02_a_transaction_counts_as_half_and_at_its_commit(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=2)
    half = await prepare(running, "u")
    assert (await values(running, "TOPIC_PUT_NUMS")) == {
        "TOPIC_PUT_NUMS RMQ_SYS_TRANS_HALF_TOPIC": 1
    }
    await end(running, half, COMMIT)
    await passes(40)
    counted = await values(running, "TOPIC_PUT_NUMS", "BROKER_PUT_NUMS")
    assert counted["TOPIC_PUT_NUMS T"] == 1
    assert "TOPIC_PUT_NUMS RMQ_SYS_TRANS_OP_HALF_TOPIC" not in counted
    # The half message, the message, and the end of the transaction.
    assert counted["BROKER_PUT_NUMS DefaultCluster"] == 3


async def test_s13_r01_r03_what_is_sent_back_counts_for_its_first_topic_and_group(
    running: RunningBroker,
) -> None:
    await running.create_topic("T", queues=1)
    offset = await send(running, b"body")
    before = await values(running, "BROKER_PUT_NUMS")
    await answered(running, Meant(offset), Meant(offset, level=-1))
    names = ("SNDBCK_PUT_NUMS", "SNDBCK2DLQ_TIMES")
    assert await values(running, *names) == {"SNDBCK_PUT_NUMS T@g": 2, "SNDBCK2DLQ_TIMES T@g": 1}
    assert await values(running, "BROKER_PUT_NUMS") == before
    assert len(await records(running, "%DLQ%g")) == 1
    assert "TOPIC_PUT_NUMS %DLQ%g" not in await values(running, "TOPIC_PUT_NUMS")


async def test_s13_items_are_chosen_by_topic_group_and_name(running: RunningBroker) -> None:
    for topic in ("T", "U"):
        await running.create_topic(topic, queues=1)
        await running.append(topic, 0, b"a")
        for group in ("g", "h"):
            await running.pull(topic=topic, queue_id=0, consumer_group=group)
    names = ["GROUP_GET_NUMS"]
    of_topic = await statistics(running, names=names, topic="T")
    assert of_topic.keys() == {"GROUP_GET_NUMS T@g", "GROUP_GET_NUMS T@h"}
    of_group = await statistics(running, names=names, consumer_group="h")
    assert of_group.keys() == {"GROUP_GET_NUMS T@h", "GROUP_GET_NUMS U@h"}
    both = await statistics(running, names=names, topic="U", consumer_group="g")
    assert both.keys() == {"GROUP_GET_NUMS U@g"}
    assert (await statistics(running, topic="T")).keys() == {
        *of_topic,
        "GROUP_GET_SIZE T@g",
        "GROUP_GET_SIZE T@h",
        "GROUP_GET_LATENCY T@g",
        "GROUP_GET_LATENCY T@h",
        *(f"GROUP_GET_FALL_{what} 0@T@{group}" for what in ("SIZE", "TIME") for group in "gh"),
        "TOPIC_PUT_NUMS T",
        "TOPIC_PUT_SIZE T",
        "TOPIC_PUT_LATENCY T",
    }


async def test_s13_internal_topics_are_told_only_when_asked_for(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await send(running, b"later", DELAY="1")
    await running.append("T", 0, b"a")
    assert {name for name in await statistics(running) if "SCHEDULE" in name} == set()
    assert [each.topic for each in (await store_statistics(running)).topics] == ["T"]
    asked = await store_statistics(running, include_system=True)
    assert [each.topic for each in asked.topics] == ["SCHEDULE_TOPIC_XXXX", "T"]
    behind = await store_statistics(running, include_system=True, topics_after="S")
    assert [each.topic for each in behind.topics] == ["SCHEDULE_TOPIC_XXXX", "T"]
    assert (await store_statistics(running, topics_after="T")).topics == []
    named = await statistics(running, names=["TOPIC_PUT_NUMS"], topic="SCHEDULE_TOPIC_XXXX")
    assert named.keys() == {"TOPIC_PUT_NUMS SCHEDULE_TOPIC_XXXX"}


async def test_s13_a_deleted_topic_takes_its_statistics_along(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a")
    await running.pull(topic="T", queue_id=0, consumer_group="g")
    await running.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="T"))
    assert await statistics(running, topic="T") == {}
    assert (await store_statistics(running)).topics == []


async def test_s13_store_statistics_tell_speeds_and_the_last_minute(running: RunningBroker) -> None:
    await running.create_topic("T", queues=1)
    await running.append("T", 0, b"a", b"b")
    told = await store_statistics(running)
    assert (list(told.put_tps), told.put_latency_99_ms, told.staged_bytes) == ([], 0, 0)
    assert told.staged_bytes_max == 32 << 30
    for _ in range(MINUTE_MS // SAMPLE_MS):
        running.clock.advance(SAMPLE_MS)
        await passes(40)
    told = await store_statistics(running)
    assert list(told.put_tps) == [0.0, pytest.approx(2 / 60)]
    assert [bucket.count for bucket in told.put_latencies_minute] == [1] + [0] * 12
    assert told.dispatch_behind_bytes == 0


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"names": ["TOPIC_PUT"]}, "name is 'TOPIC_PUT', accepted is BROKER_PUT_NUMS, "),
        ({"names": ["x" * 5_000]}, "name is 'xxx"),
        ({"names": ["TOPIC_PUT_NUMS"] * 21}, "number of names is 21, accepted is 20 or fewer"),
        ({"cursor": -1}, "cursor is -1, accepted is 0, or next_cursor of a page"),
        ({"count_max": -1}, "count_max is -1, accepted is 0 to 500"),
        ({"topic": "x" * (1 << 20)}, "bytes of the request is"),
    ],
)
async def test_s13_a_query_that_cannot_be_is_refused(
    fields: dict[str, Any], remark: str, running: RunningBroker
) -> None:
    response = await running.admin.GetStatistics(admin_pb2.GetStatisticsRequest(**fields))
    assert response.status.code == ResponseCode.INVALID_PARAMETER
    assert response.status.remark.startswith(remark)
    assert len(response.status.remark) < 700


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "'Nowhere' does not exist"),
        (
            {"topic": "T", "count_max": -1},
            ResponseCode.INVALID_PARAMETER,
            "count_max is -1, accepted is 0 to 1000",
        ),
    ],
)
async def test_groups_of_a_topic_that_cannot_be_told_are_refused(
    fields: dict[str, Any], code: ResponseCode, remark: str, running: RunningBroker
) -> None:
    await running.create_topic("T", queues=1)
    response = await running.admin.ListTopicGroups(admin_pb2.ListTopicGroupsRequest(**fields))
    assert response.status.code == code
    assert remark in response.status.remark
