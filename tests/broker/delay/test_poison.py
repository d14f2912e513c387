"""Properties of waiting messages: none stops a delay queue or the timer."""

from __future__ import annotations

import itertools
import logging

import pytest

from rocketpy_proto.model.codes import ResponseCode
from tests.broker.delay.test_levels import advance, bodies
from tests.support.blocks import WireBlock
from tests.support.broker.running_broker import StartBroker
from tests.support.hostile import HostileRecord, block_bytes

NAMES = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC", b"TRAN_MSG")
OTHERS = (
    b"",
    b"REAL_TOPIC\x01\xff\x02REAL_QID\x01x\x02",
    b"REAL_TOPIC\x01T\x02REAL_QID\x01-7",
    b"TIMER_OUT_MS\x01\xff\x02TIMER_ROLL_TIMES\x01zz\x02TIMER_DEL_UNIQKEY\x01\x00\x02",
)
VALUES = (
    *(b"1", b"18", b"99", b"-1", b"0", b"abc", b"\xff\xfe", b"\x00", b" 1", b"1 ", b"+1", b"1.5"),
    *(b"true", b"TRUE", b"9" * 19, b"9" * 40, b"-" + b"9" * 40, "\uff11".encode(), b"1e3", b"0x1"),
)
DECLARED = {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}


def record(body: bytes, properties: bytes) -> WireBlock:
    """Returns one message as a producer may write it."""
    hosts = (bytes(20), bytes(20))
    return WireBlock(
        *block_bytes([HostileRecord(b"T", body, properties, 0, 0, 0, (0, 0, 0), hosts)])
    )


async def test_s11_whatever_a_waiting_message_says_others_come_in_time(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with start_broker() as running:
        await running.create_topic("T")
        codes: dict[bytes, int] = {}
        for name, value, other in itertools.product(NAMES, VALUES, OTHERS):
            properties = other + b"\x02" * (len(other) > 0) + name + b"\x01" + value
            answer = await running.append_block("T", 1, record(b"odd", properties))
            codes[properties] = answer.status.code
        last = await running.append_block("T", 1, record(b"last", b"DELAY\x015"))
        assert last.status.code == ResponseCode.SUCCESS
        await advance(running, 61_000)
        running.clock.advance(3 * 3_600_000)
        await advance(running, 2_000)
        found = await bodies(running)
    assert b"last" in found
    assert set(codes.values()) <= DECLARED, {
        key: code for key, code in codes.items() if code not in DECLARED
    }
    assert found.count(b"odd") > 0
    assert [entry.getMessage() for entry in caplog.records] == []
