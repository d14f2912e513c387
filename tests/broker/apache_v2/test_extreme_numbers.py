"""Numbers of messages that the protocol has no room for: no message stops its consumers."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.server.apache_v2.receives.delivered_message import delivered
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.record import Record, encode_record
from tests.broker.apache_v2.test_routes import create
from tests.support.blocks import WireBlock
from tests.support.broker.clients.apache_client import ApacheClient, message, records, topic
from tests.support.broker.clients.apache_consumers import Consumer
from tests.support.broker.pops import TOPIC, with_messages
from tests.support.broker.running_broker import StartBroker

LAST_MS = 253_402_300_799_999
PRIORITY = "_SYS_MSG_PRIORITY_"
# Of classic clients, which may send any number.
EXTREME: dict[str, dict[str, Any]] = {
    "priority": {"properties": {PRIORITY: "999999999999999"}},
    "late birth": {"born_timestamp_ms": 2**62},
    "early birth": {"born_timestamp_ms": -(2**62)},
    "negative attempts": {"reconsume_times": -5},
}


@pytest.mark.parametrize("kind", EXTREME)
async def test_a_message_with_an_extreme_number_is_delivered(
    start_broker: StartBroker, kind: str
) -> None:
    async with with_messages(start_broker) as running:
        data = encode_record(Record(TOPIC, 0, b"extreme", **{"properties": {}} | EXTREME[kind]))
        await running.append_block(TOPIC, 0, WireBlock(data, len(data).to_bytes(4, "big")))
        await running.append(TOPIC, 0, b"next")
        received = await Consumer(running).receive()
        assert (received.status.code, received.bodies) == (v2.OK, [b"extreme", b"next"])
        assert received.attempts == [1, 1]


def test_numbers_become_the_nearest_that_the_protocol_has() -> None:
    properties = {PRIORITY: "999999999999999", "TIMER_DELIVER_MS": "999999999999999"}
    stored = Record(TOPIC, 0, b"a", properties, reconsume_times=2**31 - 1)
    system = delivered(stored, topic(TOPIC)).system_properties
    assert (system.priority, system.delivery_attempt) == (2**31 - 1, 2**31 - 1)
    assert system.delivery_timestamp.ToMilliseconds() == LAST_MS


@pytest.mark.parametrize(
    ("level", "kind"),
    [("0", v2.NORMAL), ("-1", v2.NORMAL), ("x", v2.NORMAL), ("3", v2.DELAY), ("9" * 20, v2.DELAY)],
)
def test_a_level_that_delays_nothing_makes_no_delayed_message(level: str, kind: int) -> None:
    # RocketMQ marks dead letters with such levels.
    stored = Record(TOPIC, 0, b"a", {"DELAY": level})
    assert delivered(stored, topic(TOPIC)).system_properties.message_type == kind


@pytest.mark.parametrize("seconds", [-(2**62), 2**62])
async def test_an_extreme_time_of_birth_counts_as_none(apache: ApacheClient, seconds: int) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t")
    sent.system_properties.born_timestamp.seconds = seconds
    assert (await apache.send(sent)).status.code == v2.OK
    (record,) = await records(apache.running, "t")
    assert record.born_timestamp_ms == apache.running.clock.now_ms()


async def test_an_extreme_delivery_time_is_refused(apache: ApacheClient) -> None:
    await create(apache, "t", read=1, write=1)
    sent = message("t")
    sent.system_properties.delivery_timestamp.seconds = 2**62
    assert (await apache.send(sent)).status.code == v2.ILLEGAL_DELIVERY_TIME
