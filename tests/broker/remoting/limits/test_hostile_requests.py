"""Requests with missing or absurd fields, and with long bodies: declared codes, nothing else."""

from __future__ import annotations

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import RemotingCommand
from tests.support.broker.clients.remoting_client import RemotingBroker

FIELDS = {
    Code.QUERY_CONSUMER_OFFSET: {"consumerGroup": "G", "topic": "T", "queueId": "0"},
    Code.UPDATE_CONSUMER_OFFSET: {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "0",
        "commitOffset": "0",
    },
    Code.SEARCH_OFFSET_BY_TIMESTAMP: {"topic": "T", "queueId": "0", "timestamp": "0"},
    Code.GET_MAX_OFFSET: {"topic": "T", "queueId": "0"},
    Code.GET_MIN_OFFSET: {"topic": "T", "queueId": "0"},
    Code.GET_EARLIEST_MSG_STORETIME: {"topic": "T", "queueId": "0"},
    Code.INVOKE_BROKER_TO_RESET_OFFSET: {
        "group": "G",
        "topic": "T",
        "timestamp": "0",
        "isForce": "true",
    },
    Code.VIEW_MESSAGE_BY_ID: {"offset": "0"},
    Code.QUERY_MESSAGE: {
        "topic": "T",
        "key": "k",
        "maxNum": "1",
        "beginTimestamp": "0",
        "endTimestamp": "1",
    },
    Code.END_TRANSACTION: {
        "producerGroup": "P",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "msgId": "u",
    },
    Code.CONSUMER_SEND_MSG_BACK: {"offset": "0", "group": "G", "delayLevel": "0"},
}
# Answers to requests without a fault, for things that do not exist.
NOTHING = {
    Code.QUERY_CONSUMER_OFFSET: ResponseCode.QUERY_NOT_FOUND,
    Code.UPDATE_CONSUMER_OFFSET: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ResponseCode.TOPIC_NOT_EXIST,
    Code.VIEW_MESSAGE_BY_ID: ResponseCode.SYSTEM_ERROR,
    Code.QUERY_MESSAGE: ResponseCode.QUERY_NOT_FOUND,
    Code.END_TRANSACTION: ResponseCode.SYSTEM_ERROR,
    Code.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_ERROR,
}
NUMBERS = ["", "x", "1.5", "9" * 30, "-" + "9" * 30, "NaN"]


async def asked(
    remoting: RemotingBroker, code: Code, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    remoting.client.tell(RemotingCommand(code, 7, ext_fields=fields, body=body))
    answer = await remoting.client.next()
    assert answer.opaque == 7
    return answer


@pytest.mark.parametrize("code", list(FIELDS))
async def test_each_field_is_checked(remoting: RemotingBroker, code: Code) -> None:
    fields = FIELDS[code]
    for name in fields:
        missing = {each: text for each, text in fields.items() if each != name}
        answer = await asked(remoting, code, missing)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert name in (answer.remark or "")
    for name in (each for each, text in fields.items() if text.isdecimal()):
        for text in NUMBERS:
            answer = await asked(remoting, code, fields | {name: text})
            assert answer.code == ResponseCode.SYSTEM_ERROR, (name, text)
            assert name in (answer.remark or "")


@pytest.mark.parametrize("code", [*FIELDS, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET])
async def test_a_body_that_nobody_reads_changes_nothing(
    remoting: RemotingBroker, code: Code
) -> None:
    answer = await asked(remoting, code, FIELDS.get(code, {}), bytes(10 << 20))
    assert answer.code == NOTHING.get(code, ResponseCode.SUCCESS), answer.remark


@pytest.mark.parametrize("code", list(FIELDS))
async def test_names_of_any_length_and_characters_are_answered(
    remoting: RemotingBroker, code: Code
) -> None:
    for text in ("x" * 30_000, "\x00\n\U0001f680", "../../T", "T@G"):
        names = {name: text for name, old in FIELDS[code].items() if not old.isdecimal()}
        answer = await asked(remoting, code, FIELDS[code] | names | {"isForce": "true"})
        assert answer.code in {NOTHING.get(code, 0), ResponseCode.INVALID_PARAMETER}
        assert len(answer.remark or "") <= 1_000
