"""Recalls by RocketMQ's clients: code 370."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import EXCHANGES
from rocketpy_proto.remoting.headers.sends import RecallMessageRequest
from tests.broker.delay.test_levels import advance
from tests.broker.remoting.test_sends_and_pulls import bodies, pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
async def test_a_delayed_message_is_recalled_by_the_handle_of_its_send(
    remoting: RemotingBroker, name: str
) -> None:
    running = remoting.running
    await running.create_topic("T", queues=1)
    running.clock.advance(345)
    times = {"TIMER_DELIVER_MS": running.clock.now_ms() + 5_000, "TIMER_DELAY_MS": 5_000}
    given = f"{name}\x01{times.get(name, 5)}\x02UNIQ_KEY\x01"
    sent = await send(remoting.client, b"recalled", properties=given + "ID")
    await send(remoting.client, b"kept", properties=given + "OTHER")
    assert sent.recall_handle is not None
    header = RecallMessageRequest("T", sent.recall_handle)
    answer = await remoting.client.ask(Code.RECALL_MESSAGE, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert EXCHANGES[Code.RECALL_MESSAGE].response.decode(answer.ext_fields).msg_id == "ID"
    await advance(running, 7_000)
    assert bodies(await pull(remoting.client)) == [b"kept"]


@pytest.mark.parametrize(
    "properties",
    ["DELAY\x011", "TIMER_DELIVER_MS\x011", "TAGS\x01a"],
    ids=["level", "past", "none"],
)
async def test_a_message_that_no_timer_holds_has_no_handle(
    remoting: RemotingBroker, properties: str
) -> None:
    await remoting.running.create_topic("T", queues=1)
    sent = await send(remoting.client, b"late", properties=properties + "\x02UNIQ_KEY\x01ID")
    assert sent.recall_handle is None
