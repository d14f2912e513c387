"""Ends of transactions by RocketMQ's producers: code 37."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rocketpy_broker.services.transactions.messages import OP_QUEUE
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import HALF_TOPIC
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_offset_message_id, decode_record
from rocketpy_proto.record.sys_flag import TRANSACTION_COMMIT
from rocketpy_proto.remoting import EXCHANGES, RemotingCommand
from rocketpy_proto.remoting.headers.sends import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    EndTransactionRequest,
)
from tests.broker.remoting.test_sends_and_pulls import bodies, pull, send
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.running_broker import until
from tests.unit.remoting import recorded

INT64_MAX = (1 << 63) - 1


async def prepare(
    remoting: RemotingBroker, body: bytes = b"x", properties: str = "", **fields: Any
) -> EndTransactionRequest:
    """Sends a half message; returns its commit."""
    given = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02{properties}"
    sent = await send(remoting.client, body, properties=given, sys_flag=4, **fields)
    assert sent.transaction_id is not None
    _, offset = decode_offset_message_id(sent.msg_id)
    key = sent.transaction_id
    return EndTransactionRequest(
        "P", sent.queue_offset, offset, COMMIT, key, transaction_id=key, topic="T"
    )


async def end(
    remoting: RemotingBroker, header: EndTransactionRequest, **fields: Any
) -> RemotingCommand:
    header = msgspec.structs.replace(header, **fields)
    return await remoting.client.ask(Code.END_TRANSACTION, header)


def tell(
    remoting: RemotingBroker, header: EndTransactionRequest, *, flag: int = 2, **fields: Any
) -> None:
    """Sends a decision, one-way unless `flag` is 0."""
    header = msgspec.structs.replace(header, **fields)
    ext_fields = EXCHANGES[Code.END_TRANSACTION].request.encode(header)
    command = RemotingCommand(Code.END_TRANSACTION, 77, flag=flag, ext_fields=ext_fields)
    remoting.client.tell(command)


def count(remoting: RemotingBroker, queue: QueueKey) -> int:
    return remoting.running.broker.store.range_of(queue).max_offset


async def test_a_commit_shows_the_message_once(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    header = await prepare(remoting)
    assert bodies(await pull(remoting.client)) == []
    answer = await end(remoting, header)
    assert (answer.code, answer.remark, answer.ext_fields) == (ResponseCode.SUCCESS, None, {})
    record = decode_record((await pull(remoting.client)).body).record
    assert (record.body, record.sys_flag) == (b"x", TRANSACTION_COMMIT)
    assert record.prepared_transaction_offset == header.commit_log_offset
    assert (await end(remoting, header)).code == ResponseCode.SUCCESS
    assert bodies(await pull(remoting.client)) == [b"x"]
    answer = await end(remoting, header, commit_or_rollback=ROLLBACK)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION


async def test_a_rollback_shows_nothing(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    header = await prepare(remoting)
    for _ in range(2):
        answer = await end(remoting, header, commit_or_rollback=ROLLBACK)
        assert answer.code == ResponseCode.SUCCESS
    assert (await end(remoting, header)).code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(await pull(remoting.client)) == []


async def test_an_unknown_end_changes_nothing_and_gets_no_answer(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    header = await prepare(remoting)
    for is_check in (False, True):
        tell(
            remoting,
            header,
            flag=0,
            commit_or_rollback=UNKNOWN,
            is_from_transaction_check=is_check,
        )
    # The next answer on this connection is the commit's.
    assert (await end(remoting, header)).code == ResponseCode.SUCCESS
    assert bodies(await pull(remoting.client)) == [b"x"]


async def test_one_way_ends_decide_although_their_connection_ends(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    ends = [await prepare(remoting, b"%d" % number) for number in range(4)]
    async with remoting.another() as other:
        for number, header in enumerate(ends):
            decision = COMMIT if number % 2 else ROLLBACK
            tell(RemotingBroker(remoting.running, other), header, commit_or_rollback=decision)
        await other.writer.drain()
    await until(lambda: count(remoting, QueueKey("T", 0)) == 2)
    assert bodies(await pull(remoting.client)) == [b"1", b"3"]
    answer = await end(remoting, ends[0], commit_or_rollback=ROLLBACK)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"producer_group": "Q"}, ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
        ({"tran_state_table_offset": 9}, ResponseCode.SYSTEM_ERROR, "state table offset wrong"),
        ({"tran_state_table_offset": -1}, ResponseCode.SYSTEM_ERROR, "state table offset wrong"),
        ({"transaction_id": "other"}, ResponseCode.SYSTEM_ERROR, "transaction id wrong"),
        (
            {"commit_log_offset": 1},
            ResponseCode.SYSTEM_ERROR,
            "Find prepared transaction message failed",
        ),
        (
            {"commit_log_offset": -1},
            ResponseCode.SYSTEM_ERROR,
            "Find prepared transaction message failed",
        ),
        (
            {"commit_log_offset": INT64_MAX},
            ResponseCode.SYSTEM_ERROR,
            "Find prepared transaction message failed",
        ),
    ],
)
async def test_refused_ends_leave_the_transaction_open(
    remoting: RemotingBroker, fields: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    await remoting.running.create_topic("T")
    header = await prepare(remoting)
    answer = await end(remoting, header, **fields)
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert (await end(remoting, header, commit_or_rollback=ROLLBACK)).code == ResponseCode.SUCCESS


async def test_an_end_of_no_kind_is_refused(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    header = await prepare(remoting)
    fields = EXCHANGES[Code.END_TRANSACTION].request.encode(header)
    for decision in ("4", "-1", "9" * 30, "commit"):
        ext_fields = fields | {"commitOrRollback": decision}
        remoting.client.tell(RemotingCommand(Code.END_TRANSACTION, 5, ext_fields=ext_fields))
        answer = await remoting.client.next()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "commitOrRollback" in (answer.remark or "")
    assert bodies(await pull(remoting.client)) == []


async def test_a_late_end_waits_for_the_check_that_its_message_wants(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    immunity, born_ms = "CHECK_IMMUNITY_TIME_IN_SECONDS\x017\x02", remoting.running.clock.now_ms()
    early, late = [
        await prepare(remoting, body, immunity, born_ms=born_ms) for body in (b"early", b"late")
    ]
    remoting.running.clock.advance(7_000)
    assert (await end(remoting, early)).code == ResponseCode.SUCCESS
    remoting.running.clock.advance(1)
    assert (await end(remoting, late)).code == ResponseCode.ILLEGAL_OPERATION
    answer = await end(remoting, late, is_from_transaction_check=True)
    assert answer.code == ResponseCode.SUCCESS
    assert bodies(await pull(remoting.client)) == [b"early", b"late"]


async def test_a_message_that_is_no_half_message_is_not_ended(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    sent = await send(remoting.client, b"x", properties="PGROUP\x01P\x02UNIQ_KEY\x01u\x02")
    _, offset = decode_offset_message_id(sent.msg_id)
    answer = await end(remoting, EndTransactionRequest("P", 0, offset, COMMIT, "u"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert bodies(await pull(remoting.client)) == [b"x"]


@recorded.needs_golden
async def test_javas_end_of_a_transaction_is_understood(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("ProbeJ")
    command = recorded.request("J04_java_end_transaction")
    key = command.ext_fields["transactionId"]
    given = f"TRAN_MSG\x01true\x02PGROUP\x01JPG\x02UNIQ_KEY\x01{key}\x02"
    sent = await send(remoting.client, b"x", topic="ProbeJ", properties=given, sys_flag=4)
    _, offset = decode_offset_message_id(sent.msg_id)
    fields = dict(command.ext_fields) | {"commitLogOffset": str(offset)}
    remoting.client.tell(msgspec.structs.replace(command, ext_fields=fields))
    await until(lambda: count(remoting, QueueKey("ProbeJ", 0)) == 1)
    assert (count(remoting, QueueKey(HALF_TOPIC, 0)), count(remoting, OP_QUEUE)) == (1, 1)
