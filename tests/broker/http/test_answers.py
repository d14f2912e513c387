"""Answers in steps: long lists give other work its turn, and long messages hold no lock."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from rocketpy_broker.messages.stored import Message
from rocketpy_broker.server.http.api.answers import ENTRIES_A_SLOT, answer_json, message_json
from rocketpy_broker.server.http.api.calls import RefusedCallError
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.sys_flag import COMPRESSED
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.event_loop import counted_slots


async def test_a_long_list_is_encoded_in_slots() -> None:
    names = [f"topic-{number}" for number in range(3 * ENTRIES_A_SLOT)]
    configs = [admin_pb2.TopicConfig(topic=name) for name in names]
    async with counted_slots() as slots:
        text = await answer_json(admin_pb2.ListTopicsResponse(configs=configs))
    found = json.loads(text)
    assert [each["topic"] for each in found["configs"]] == names
    assert found["hasMore"] is False
    assert len(slots) == 2


async def test_a_long_list_of_an_entry_is_encoded_in_slots() -> None:
    queues = [broker_pb2.QueueOffsets(queue_id=each) for each in range(3 * ENTRIES_A_SLOT)]
    answer = broker_pb2.QueryOffsetsResponse()
    answer.topics.add(topic="orders", queues=queues)
    async with counted_slots() as slots:
        text = await answer_json(answer, "topics")
    found = json.loads(text)
    assert [each["queueId"] for each in found["queues"]] == [*range(3 * ENTRIES_A_SLOT)]
    assert len(slots) == 2


async def test_an_entry_that_reports_an_error_is_an_error() -> None:
    answer = broker_pb2.QueryOffsetsResponse()
    answer.topics.add(topic="orders").status.code = 17
    with pytest.raises(RefusedCallError) as refused:
        await answer_json(answer, "topics")
    assert refused.value.number == 17


async def test_an_empty_answer_is_an_object() -> None:
    assert await answer_json(admin_pb2.UpdateTopicResponse()) == b"{}"
    found = json.loads(await answer_json(admin_pb2.MessagesResponse()))
    assert found == {"nextBeforeOffset": 0, "messages": []}


def message(body: bytes, sys_flag: int = 0) -> Message:
    block = wire_block("orders", [body])
    record = decode_record(block.records).record
    return Message.of(replace(record, sys_flag=record.sys_flag | sys_flag))


@pytest.mark.parametrize(
    "text", ["", "a" * 250_000, 'ä"\\\n\u2028' * 50_000, "\N{GRINNING FACE}" * 60_000]
)
def test_a_text_of_any_length_is_itself_again(text: str) -> None:
    encoded, size = message_json(message(text.encode()), 1 << 20)
    found = json.loads(encoded)
    shown = found.get("body")
    assert size == len(text.encode())
    assert shown == text or found["bodyBase64"]


def test_a_cut_body_ends_with_a_whole_character() -> None:
    text = "\N{GRINNING FACE}" * 3
    for limit in range(1, 12):
        encoded, size = message_json(message(text.encode()), limit)
        found = json.loads(encoded)
        assert found["bodyIsCut"] is True
        assert found["body"] == text[: limit // 4]
        assert size == limit // 4 * 4


def test_a_body_that_cannot_be_inflated_is_shown_as_it_is_stored() -> None:
    broken, _ = message_json(message(b"no zlib", COMPRESSED), 1 << 20)
    found = json.loads(broken)
    assert (found["body"], bool(found["bodyError"])) == ("no zlib", True)
    inflated, _ = message_json(message(zlib.compress(b"text" * 9), COMPRESSED), 8)
    assert json.loads(inflated)["body"] == "texttext"
