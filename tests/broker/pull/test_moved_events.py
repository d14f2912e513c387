"""OFFSET_MOVED_EVENT messages of moved offsets, limited in number."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from rocketpy_broker.services.pull import moved_events
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import Record, decode_record
from tests.broker.pull.test_checks import pulled
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import refuse_writes

EVENTS = QueueKey("OFFSET_MOVED_EVENT", 0)


async def events(running: RunningBroker) -> list[Record]:
    """Returns the records of the topic."""
    records: list[Record] = []
    for response in await running.pull(topic=EVENTS.topic):
        data = memoryview(response.records)
        while data:
            decoded = decode_record(data)
            records.append(decoded.record)
            data = data[decoded.size :]
    return records


def event_count(running: RunningBroker) -> int:
    return running.broker.store.next_offset(EVENTS)


async def moved(running: RunningBroker, **fields: Any) -> None:
    answer = await pulled(running, **fields)
    assert answer.status.code == ResponseCode.PULL_OFFSET_MOVED


async def test_c06_the_event_has_rocketmqs_form(start_broker: StartBroker) -> None:
    async with start_broker(FlushDiskType.ASYNC_FLUSH) as running:
        await running.create_topic("T")
        await running.append("T", 2, b"a", b"b")
        await moved(running, queue_id=2, offset=9)
        [event] = await events(running)
    assert event.body == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"broker-a","queueId":2,"topic":"T"},'
        b'"offsetNew":2,"offsetRequest":9}'
    )
    assert event.properties == {"TAGS": "g", "KEYS": "g"}
    assert (event.flag, event.sys_flag, event.reconsume_times, event.queue_id) == (0, 0, 0, 0)
    assert event.born_host == event.store_host
    assert event.born_timestamp_ms == event.store_timestamp_ms == running.clock.now_ms()


async def test_c06_an_event_is_found_by_the_group_as_tag_and_key(running: RunningBroker) -> None:
    await running.create_topic("T")
    for group in ("g", "h"):
        await moved(running, consumer_group=group, offset=3)
    [found] = await running.pull(topic=EVENTS.topic, expression="h")
    assert b'"consumerGroup":"h"' in found.records
    assert b'"consumerGroup":"g"' not in found.records
    running.broker.store.dispatch()
    store = running.broker.store
    assert len(store.messages.by_key(EVENTS.topic, "h", 0, 1 << 62, 10)) == 1


async def test_c06_with_sync_flush_the_event_shows_although_nobody_waits_for_it(
    start_broker: StartBroker,
) -> None:
    async with start_broker(FlushDiskType.SYNC_FLUSH) as running:
        await running.create_topic("T")
        await moved(running, offset=3)
        [held] = await running.pull(topic=EVENTS.topic, wait_ms_max=30_000)
        assert held.status.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"offset": 9}, 1),
        ({"offset": 5, "queue_id": 1}, 1),
        ({"offset": 2}, 0),
        ({"offset": 0, "queue_id": 1}, 0),
        ({"offset": 9, "consumer_group": ""}, 0),
        ({"offset": 9, "topic": "Unknown"}, 0),
        ({"offset": 9, "commit_offset": -1}, 0),
    ],
)
async def test_c06_only_a_groups_offset_that_was_moved_is_told(
    fields: dict[str, Any], count: int, running: RunningBroker
) -> None:
    await running.create_topic("T")
    await running.append("T", 0, b"a", b"b")
    await pulled(running, **fields)
    assert event_count(running) == count


async def test_c06_an_offset_below_the_queue_is_told_too(running: RunningBroker) -> None:
    await running.create_topic("T")
    for _ in range(3):
        await running.append("T", 0, *[bytes(30_000)] * 20)
    store = running.broker.store
    removal = store.plan_removal()
    removal.run()
    store.removed(removal)
    low = store.range_of(QueueKey("T", 0)).min_offset
    assert low > 0
    await moved(running, offset=1)
    [event] = await events(running)
    assert b'"offsetNew":%d,"offsetRequest":1' % low in event.body


async def test_c06_a_client_that_pulls_a_wrong_offset_again_and_again_is_told_of_once(
    running: RunningBroker,
) -> None:
    await running.create_topic("T")
    for _ in range(20):
        await moved(running, offset=9)
    assert event_count(running) == 1
    for fields in ({"offset": 8}, {"queue_id": 1}, {"consumer_group": "h"}):
        await moved(running, **{"offset": 9, **fields})
    assert event_count(running) == 4
    running.clock.advance(moved_events.REPEAT_MS - 1)
    await moved(running, offset=9)
    assert event_count(running) == 4
    running.clock.advance(1)
    await moved(running, offset=9)
    assert event_count(running) == 5


async def test_c06_no_more_events_are_written_in_a_minute_than_may_be(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    most = moved_events.EVENTS_PER_MINUTE_MAX
    async with start_broker() as running:
        await running.create_topic("T")
        for offset in range(1, most + 8):
            await moved(running, offset=offset)
        assert event_count(running) == most
        assert len(running.broker.services.pull.pulls._events) == most
        running.clock.advance(moved_events.MINUTE_MS)
        await moved(running, offset=most + 7)
        assert event_count(running) == most + 1
        assert "left out 7 events of moved offsets" in caplog.text
        running.clock.advance(moved_events.REPEAT_MS)
        await moved(running, offset=1)
        assert len(running.broker.services.pull.pulls._events) == 1


async def test_c06_a_pull_is_answered_although_its_event_cannot_be_stored(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker() as running:
        await running.create_topic("T")
        with monkeypatch.context() as patch:
            refuse_writes(patch, errno.ENOSPC, EVENTS)
            for _ in range(3):
                await moved(running, offset=9)
        assert event_count(running) == 0
    assert caplog.text.count("the event of a moved offset was not stored") == 1
