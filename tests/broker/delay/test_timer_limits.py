"""Refused delivery times: code and remark of each; nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy_broker.config import SystemTopicOptions
from rocketpy_broker.runtime.time_format import time_of_ms
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.delay.test_levels import advance, bodies, visible
from tests.broker.delay.test_times import NOW_MS, send_at
from tests.support.blocks import wire_block
from tests.support.broker.running_broker import StartBroker

THREE_DAYS_MS = 3 * 86_400_000


async def test_d02_no_more_wait_than_may_and_the_figures_are_named(
    start_broker: StartBroker,
) -> None:
    async with start_broker(timer_pending_max=3) as running:
        await running.create_topic("T")
        await send_at(running, [NOW_MS + 2_000] * 2, b"a", b"b")
        answer = await send_at(running, [NOW_MS + 2_000] * 2, b"c", b"d")
        assert answer.status.code == ResponseCode.SYSTEM_ERROR
        assert answer.status.remark.startswith(
            "timer message is under flow control, 2 messages wait for their delivery time and 2 "
            "more were sent, limit 3."
        )
        assert (await send_at(running, [NOW_MS + 3_000], b"e")).status.code == 0
        await advance(running, 2_100)
        assert (await send_at(running, [NOW_MS + 5_000] * 2, b"f", b"g")).status.code == 0
        await advance(running, 4_000)
        assert await bodies(running) == [b"a", b"b", b"e", b"f", b"g"]


@pytest.mark.parametrize(
    ("settings", "properties", "code", "remark"),
    [
        (
            {"timer_delay_ms_max": 1_000},
            {"TIMER_DELAY_MS": "1001"},
            ResponseCode.MESSAGE_ILLEGAL,
            "accepted is up to 1 second from now",
        ),
        (
            {},
            {"TIMER_DELIVER_MS": str(NOW_MS + THREE_DAYS_MS + 1)},
            ResponseCode.MESSAGE_ILLEGAL,
            f"at {time_of_ms(NOW_MS + THREE_DAYS_MS + 1)}, accepted is up to 3 days from now",
        ),
        (
            {},
            {"TIMER_DELIVER_MS": "soon"},
            ResponseCode.MESSAGE_ILLEGAL,
            "TIMER_DELIVER_MS is 'soon'",
        ),
        (
            {},
            {"TIMER_DELIVER_MS": str(NOW_MS), "TIMER_DEL_UNIQKEY": "T+K"},
            ResponseCode.MESSAGE_ILLEGAL,
            f"message to cancel was due at {time_of_ms(NOW_MS)}",
        ),
    ],
)
async def test_d02_a_time_that_cannot_be_is_refused(
    start_broker: StartBroker,
    settings: dict[str, Any],
    properties: dict[str, str],
    code: ResponseCode,
    remark: str,
) -> None:
    async with start_broker(**settings) as running:
        await running.create_topic("T")
        given = {name: [value] for name, value in properties.items()}
        answer = await running.append_block("T", 1, wire_block("T", [b"x"], properties=given))
        assert answer.status.code == code
        assert remark in answer.status.remark
        assert running.broker.store.queues() == []


async def test_d02_without_a_timer_times_are_refused_in_rocketmqs_words(
    start_broker: StartBroker,
) -> None:
    options = SystemTopicOptions(timer_wheel_enable=False)
    async with start_broker(system_topics=options) as running:
        await running.create_topic("T")
        answer = await send_at(running, [NOW_MS + 2_000], b"x")
        assert answer.status.code == ResponseCode.SYSTEM_ERROR
        assert answer.status.remark == (
            "accurate timer message is not enabled, timerWheelEnable is false"
        )
        assert visible(running) == 0
