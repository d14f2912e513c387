"""Messages that cancel delayed messages: a user cancels messages of its own topics alone."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting.headers.sends import SendMessageRequest
from tests.support.broker.clients.users import OTHER, TOPIC, Secured


@pytest.mark.parametrize(
    ("cancelled", "code"),
    [
        (f"{TOPIC}+key", 0),
        (f"{OTHER}+key", ResponseCode.NO_PERMISSION),
        ("key", ResponseCode.NO_PERMISSION),
    ],
)
async def test_n09_a_user_cancels_messages_of_its_topic_alone(
    cancelled: str, code: int, secured: Secured
) -> None:
    due_ms = secured.running.clock.now_ms() + 60_000
    names = {"UNIQ_KEY": "key", "TIMER_DELIVER_MS": due_ms, "TIMER_DEL_UNIQKEY": cancelled}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in names.items())
    header = SendMessageRequest("p", TOPIC, 0, 1_700_000_000_000, properties=properties)
    answer = await secured.ask("writer", Code.SEND_MESSAGE, header, b"x")
    assert answer.code == code, answer.remark
