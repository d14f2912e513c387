"""Stored messages of SendMessage: their records, their queues, and the answers."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace
from typing import Any

import pytest

from rocketpy_broker.config import BrokerRole, Limits, Replication
from rocketpy_broker.server.apache_v2.sends.group_queue import consistent_hash, queue_of_group
from rocketpy_broker.store.config import FlushDiskType, FlushTimes
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record.sys_flag import COMPRESSED
from tests.broker.apache_v2.test_routes import create
from tests.support.broker.clients.apache_client import ApacheClient, message, records
from tests.support.broker.clients.apache_consumers import Consumer
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.store.disk_calls import LOG, holding

SYNC = Replication(BrokerRole.SYNC_MASTER, port=0)


async def test_a_record_has_all_parts_of_its_message(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t", b"body", tag="a", keys=["k1", "k2"], trace_context="trace", born_host="pc")
    sent.user_properties.update({"color": "red", "size": "10"})
    sent.system_properties.born_timestamp.FromMilliseconds(1_700_000_000_123)
    await apache.send(sent)
    (record,) = await records(apache.running, "t")
    assert record.body == b"body"
    assert record.born_timestamp_ms == 1_700_000_000_123
    assert str(record.born_host.address) == "127.0.0.1"
    assert record.properties == {
        "color": "red",
        "size": "10",
        "UNIQ_KEY": sent.system_properties.message_id,
        "TAGS": "a",
        "KEYS": "k1 k2",
        "TRACE_CONTEXT": "trace",
        "__BORNHOST": "pc",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_missing_birth_and_host_are_the_broker_s_clock_and_the_peer(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t", born_host=" ")
    sent.system_properties.ClearField("born_timestamp")
    await apache.send(sent)
    (record,) = await records(apache.running, "t")
    assert record.born_timestamp_ms == apache.running.clock.now_ms()
    assert record.properties["__BORNHOST"] == "127.0.0.1"


async def test_a_compressed_body_is_kept_as_it_is(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    compressed = gzip.compress(b"body")
    await apache.send(message("t", compressed, body_encoding=v2.GZIP))
    (record,) = await records(apache.running, "t")
    assert record.body == compressed
    assert record.sys_flag & COMPRESSED


async def test_a_priority_is_a_property(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    await apache.send(message("t", priority=0), message("t", priority=3))
    found = await records(apache.running, "t")
    assert [each.properties["_SYS_MSG_PRIORITY_"] for each in found] == ["0", "3"]


async def test_messages_of_a_priority_topic_come_with_it_in_the_order_of_their_sends(
    apache: ApacheClient,
) -> None:
    await create(apache, "t", read=1, write=1, kind="PRIORITY")
    for priority in (1, 9, 5):
        assert (await apache.send(message("t", priority=priority))).status.code == v2.OK
    received = await Consumer(apache.running, topic="t").receive()
    found = [each.system_properties for each in received.messages]
    assert [(each.message_type, each.priority) for each in found] == [
        (v2.PRIORITY, 1),
        (v2.PRIORITY, 9),
        (v2.PRIORITY, 5),
    ]


async def test_messages_without_a_group_go_round_the_queues(apache: ApacheClient) -> None:
    await create(apache, "t", read=4, write=4)
    for number in range(8):
        assert (await apache.send(message("t", b"%d" % number))).status.code == v2.OK
    counts = [len(await records(apache.running, "t", queue)) for queue in range(4)]
    assert counts == [2, 2, 2, 2]


async def test_messages_of_a_group_stay_in_one_queue_in_their_order(apache: ApacheClient) -> None:
    await create(apache, "t", read=4, write=4)
    for number in range(12):
        group = f"group-{number % 3}"
        await apache.send(message("t", b"%d" % number, message_group=group))
    for number in range(3):
        queue_id = queue_of_group(f"group-{number}", 4)
        found = await records(apache.running, "t", queue_id)
        mine = [
            each.body for each in found if each.properties["__SHARDINGKEY"] == f"group-{number}"
        ]
        assert mine == [b"%d" % each for each in range(number, 12, 3)]


def test_the_queue_of_a_group_is_that_of_rocketmq_s_proxy() -> None:
    """Compares values of Guava's own test of its consistent hash."""
    golden = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [consistent_hash(number, 100) for number in range(20)] == golden
    assert consistent_hash(10_863_919_174_838_991, 11) == 6
    assert {queue_of_group(f"g{number}", 3) for number in range(50)} == {0, 1, 2}
    moved = [
        name
        for name in (f"g{number}" for number in range(1_000))
        if queue_of_group(name, 10) != queue_of_group(name, 11)
    ]
    assert 40 < len(moved) < 140


async def test_an_answer_has_one_entry_for_each_message_in_order(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    sent = [message("t", b"%d" % number) for number in range(5)]
    response = await apache.send(*sent)
    assert response.status.code == v2.OK
    ids = [each.system_properties.message_id for each in sent]
    assert [each.message_id for each in response.entries] == ids
    assert [each.transaction_id for each in response.entries] == ids
    assert [each.offset for each in response.entries] == [0, 1, 2, 3, 4]
    assert [each.recall_handle for each in response.entries] == 5 * [""]
    assert [each.body for each in await records(apache.running, "t")] == [
        each.body for each in sent
    ]


async def test_more_messages_than_the_limit_are_refused(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    assert (await apache.send(*(128 * [message("t")]))).status.code == v2.OK
    response = await apache.send(*(129 * [message("t")]))
    assert (response.status.code, len(response.entries)) == (v2.PAYLOAD_TOO_LARGE, 0)
    assert len(await records(apache.running, "t")) == 128


async def test_a_large_request_with_many_parts_is_not_decoded(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    wide = message("t", bytes(600_000))
    wide.system_properties.keys.extend(["k"] * 5_000)
    response = await apache.send(wide)
    assert response.status.code == v2.PAYLOAD_TOO_LARGE
    assert "parts" in response.status.message


def waiting_count(running: RunningBroker) -> int:
    """Returns the number of messages that wait for the disk or for slaves."""
    services = running.broker.services
    confirmations = services.replication.confirmations
    return services.flush.group_commit.waiting_count + len(confirmations._waiting)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"flush": FlushDiskType.SYNC_FLUSH}, v2.MASTER_PERSISTENCE_TIMEOUT),
        ({"replication": SYNC}, v2.HA_NOT_AVAILABLE),
        ({"replication": replace(SYNC, in_sync_replicas=2)}, v2.SLAVE_PERSISTENCE_TIMEOUT),
    ],
)
async def test_a_message_that_is_stored_but_not_confirmed_has_no_ids(
    start_broker: StartBroker,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    code: v2.Code,
) -> None:
    async with start_broker(**settings) as running:
        apache = ApacheClient(running)
        await create(apache, "t", read=1, write=1)
        with holding(monkeypatch, "fdatasync", LOG):
            sending = asyncio.ensure_future(apache.send(message("t")))
            await until(lambda: sending.done() or waiting_count(running) > 0)
            running.clock.advance(FlushTimes().sync_flush_timeout_ms)
            response = await sending
        assert response.status.code == code
        (entry,) = response.entries
        assert (entry.status.code, entry.message_id) == (code, "")
        await until(lambda: running.broker.store.range_of(QueueKey("t", 0)).max_offset == 1)


async def test_entries_with_different_results_say_so_at_the_top(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(unflushed_bytes_max=1)
    async with start_broker(FlushDiskType.SYNC_FLUSH, limits) as running:
        apache, statistics = ApacheClient(running), running.broker.store.statistics
        await create(apache, "t", read=1, write=1)
        with holding(monkeypatch, "fdatasync", LOG) as gate:
            sending = asyncio.ensure_future(apache.send(message("t"), message("t")))
            # The second message waits for the flush of the first one.
            await until(lambda: waiting_count(running) > 0)
            running.clock.advance(FlushTimes().sync_flush_timeout_ms)
            await until(lambda: statistics.put_failed_count > 0)
            gate.open()
            response = await sending
    assert response.status.code == v2.MULTIPLE_RESULTS
    assert [each.status.code for each in response.entries] == [v2.OK, v2.TOO_MANY_REQUESTS]


async def test_namespaces_are_apart(apache: ApacheClient) -> None:
    for name in ("t", "a%t", "b%t"):
        await create(apache, name, read=1, write=1)
    apache.namespace = "a"
    await apache.send(message("t", b"of a"))
    own = message("t", b"of b")
    own.topic.resource_namespace = "b"
    await apache.send(own)
    apache.namespace = ""
    await apache.send(message("t", b"of none"))
    found = {name: await records(apache.running, name) for name in ("t", "a%t", "b%t")}
    assert {name: [each.body for each in some] for name, some in found.items()} == {
        "t": [b"of none"],
        "a%t": [b"of a"],
        "b%t": [b"of b"],
    }
