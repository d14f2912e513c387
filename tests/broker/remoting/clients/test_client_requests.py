"""Requests to clients: transaction checks, running info, a message, offsets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketpy_broker.server.remoting.clients import ANSWER_MS_MAX
from rocketpy_broker.server.remoting.processors.forward_processor import CLIENTS_A_SLOT
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import decode_offset_message_id, decode_record
from rocketpy_proto.remoting import (
    EXCHANGES,
    MessageQueue,
    QueueTable,
    RemotingCommand,
    encode_body,
)
from rocketpy_proto.remoting.bodies.clients import ConsumerStatusBody
from rocketpy_proto.remoting.headers.clients import (
    ConsumeMessageDirectlyRequest,
    ConsumerStatusRequest,
    GetConsumerRunningInfoRequest,
)
from rocketpy_proto.remoting.headers.sends import (
    CheckTransactionStateRequest,
    SendMessageResponse,
)
from tests.broker.remoting.test_sends_and_pulls import pull, send
from tests.support.broker.clients import group_clients
from tests.support.broker.clients.remoting_client import RemotingBroker, RemotingClient
from tests.support.broker.clients.remoting_groups import body_of, consumer, heartbeat
from tests.support.broker.transactions import rounds
from tests.unit.remoting.recorded import needs_golden, request

QUEUE = MessageQueue("broker-a", 0, "T")
RUNNING_INFO = GetConsumerRunningInfoRequest("G", "c1", is_stack_wanted=True)


async def joined(client: RemotingClient, client_id: str = "c1") -> None:
    """Registers a consumer of group G that is also a producer, and drops its notices."""
    await heartbeat(client, client_id, consumer("G", "T"), producers=["P"])
    client.requests.clear()


async def next_request(client: RemotingClient, code: Code) -> RemotingCommand:
    """Returns the next request of that code; leaves out notices of joins."""
    while (command := await client.request()).code != code:
        assert command.code == Code.NOTIFY_CONSUMER_IDS_CHANGED
    assert not command.is_response
    return command


# --- Transaction checks ---


async def prepare(remoting: RemotingBroker, key: str, **fields: Any) -> SendMessageResponse:
    """Sends the half message of a transaction of producer group P."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{key}\x02TAGS\x01a"
    born_ms = remoting.running.clock.now_ms()
    return await send(remoting.client, b"half", properties=properties, born_ms=born_ms, **fields)


async def test_a_producer_gets_the_check_of_its_transaction(remoting: RemotingBroker) -> None:
    client = remoting.client
    await remoting.running.create_topic("T")
    await heartbeat(client, "c1", producers=["P"])
    sent = await prepare(remoting, "KEY", queue_id=1, sys_flag=4)
    assert (await pull(client, queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
    await rounds(remoting.running)
    check = await client.request()
    assert (check.code, check.is_one_way) == (Code.CHECK_TRANSACTION_STATE, True)
    header: CheckTransactionStateRequest = EXCHANGES[Code.CHECK_TRANSACTION_STATE].request.decode(
        check.ext_fields
    )
    offset = decode_offset_message_id(str(header.offset_msg_id))[1]
    # The half message was copied to count the check.
    assert header == CheckTransactionStateRequest(
        *(sent.queue_offset + 1, offset, "KEY", "KEY", header.offset_msg_id),
        *("RMQ_SYS_TRANS_HALF_TOPIC", "broker-a"),
    )
    assert offset > decode_offset_message_id(sent.msg_id)[1]
    record = decode_record(check.body).record
    assert (record.topic, record.queue_id, record.body) == ("T", 1, b"half")
    assert record.properties["PGROUP"] == "P"
    assert record.properties["TAGS"] == "a"


@needs_golden
async def test_a_check_has_the_fields_of_a_recorded_one(remoting: RemotingBroker) -> None:
    recorded = request("S01_check_transaction_state")
    await remoting.running.create_topic("T")
    await heartbeat(remoting.client, "c1", producers=["P"])
    await prepare(remoting, "KEY")
    await rounds(remoting.running)
    check = await remoting.client.request()
    assert check.ext_fields.keys() == recorded.ext_fields.keys()
    assert check.ext_fields["topic"] == recorded.ext_fields["topic"]
    wanted, record = decode_record(recorded.body).record, decode_record(check.body).record
    assert record.sys_flag == wanted.sys_flag
    assert {"REAL_TOPIC", "REAL_QID", "PGROUP", "TRAN_MSG", "UNIQ_KEY"} <= (
        record.properties.keys() & wanted.properties.keys()
    )


async def test_one_of_the_producers_gets_each_check(remoting: RemotingBroker) -> None:
    await remoting.running.create_topic("T")
    async with remoting.another() as other:
        clients = (remoting.client, other)
        for number, client in enumerate(clients):
            await heartbeat(client, f"c{number}", producers=["P"])
        for key in ("k1", "k2"):
            await prepare(remoting, key)
        await rounds(remoting.running)
        checks = [await next_request(each, Code.CHECK_TRANSACTION_STATE) for each in clients]
        assert {each.ext_fields["msgId"] for each in checks} == {"k1", "k2"}


# --- Requests that are forwarded ---


async def test_a_client_is_asked_for_its_running_info(remoting: RemotingBroker) -> None:
    client = remoting.client
    await joined(client)
    async with remoting.another() as admin:
        asking = asyncio.ensure_future(admin.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO))
        asked = await client.request()
        assert asked.code == Code.GET_CONSUMER_RUNNING_INFO
        assert not asked.is_one_way
        form = EXCHANGES[Code.GET_CONSUMER_RUNNING_INFO].request
        assert form.decode(asked.ext_fields) == RUNNING_INFO
        # Other requests of the client go on meanwhile; an answer without a request is ignored.
        client.tell(RemotingCommand(0, asked.opaque + 5, flag=1, body=b"stray"))
        await joined(client)
        client.tell(asked.answer(0, remark="fine", ext_fields={"a": "b"}, body=b'{"x":1}'))
        answer = await asking
    assert (answer.code, answer.remark, bytes(answer.body)) == (0, "fine", b'{"x":1}')
    assert answer.ext_fields == {"a": "b"}


async def test_a_failure_of_the_client_is_the_answer(remoting: RemotingBroker) -> None:
    await joined(remoting.client)
    async with remoting.another() as admin:
        asking = asyncio.ensure_future(admin.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO))
        asked = await remoting.client.request()
        remoting.client.tell(asked.answer(ResponseCode.SYSTEM_ERROR, remark="not here"))
        answer = await asking
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "not here")


async def test_a_client_that_does_not_answer_has_ten_seconds(remoting: RemotingBroker) -> None:
    await joined(remoting.client)
    async with remoting.another() as admin:
        asking = asyncio.ensure_future(admin.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO))
        asked = await remoting.client.request()
        remoting.running.clock.advance(ANSWER_MS_MAX - 1)
        async with remoting.another() as other:
            await other.ask(9_999)
        assert not asking.done()
        remoting.running.clock.advance(1)
        answer = await asking
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "limit 10000 ms" in str(answer.remark)
        # A late answer changes nothing.
        remoting.client.tell(asked.answer(0))
        await joined(remoting.client)


async def test_a_request_ends_with_the_connection_of_its_client(remoting: RemotingBroker) -> None:
    async with remoting.another() as client:
        await joined(client)
        asking = asyncio.ensure_future(
            remoting.client.ask(Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO)
        )
        await client.request()
    answer = await asking
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "has ended" in str(answer.remark)


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (Code.GET_CONSUMER_RUNNING_INFO, RUNNING_INFO),
        (Code.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest("other", "c2")),
        (Code.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequest("G", "own")),
    ],
)
async def test_a_client_that_is_not_online_is_reported(
    remoting: RemotingBroker, code: Code, header: Any
) -> None:
    running = remoting.running
    await heartbeat(remoting.client, "c2", consumer("G2", "T"))
    # A client of another protocol cannot be asked.
    await group_clients.heartbeat(running, "own", group_clients.consumer("G", "T"))
    answer = await remoting.client.ask(code, header)
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert "not online" in str(answer.remark)


async def test_a_client_that_does_not_read_gets_no_more_requests(
    remoting: RemotingBroker,
) -> None:
    await remoting.running.create_topic("T")
    sent = await send(remoting.client, bytes(900_000))
    header = ConsumeMessageDirectlyRequest("G", "c1", sent.msg_id)
    async with remoting.another() as slow:
        await joined(slow)
        codes = set()
        for opaque in range(40):
            remoting.client.tell(
                RemotingCommand(
                    *(Code.CONSUME_MESSAGE_DIRECTLY, opaque),
                    ext_fields=EXCHANGES[Code.CONSUME_MESSAGE_DIRECTLY].request.encode(header),
                )
            )
        while ResponseCode.SYSTEM_BUSY not in codes:
            codes.add((await remoting.client.next()).code)


async def test_a_message_is_sent_to_a_client_to_consume_it(remoting: RemotingBroker) -> None:
    client = remoting.client
    await remoting.running.create_topic("T")
    sent = await send(client, b"again", queue_id=2)
    await joined(client)
    header = ConsumeMessageDirectlyRequest("G", "c1", sent.msg_id, topic="T")
    async with remoting.another() as admin:
        asking = asyncio.ensure_future(admin.ask(Code.CONSUME_MESSAGE_DIRECTLY, header))
        asked = await client.request()
        assert asked.ext_fields["brokerName"] == "broker-a"
        record = decode_record(asked.body).record
        assert (record.topic, record.queue_id, record.body) == ("T", 2, b"again")
        result = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false}'
        client.tell(asked.answer(0, body=result))
        found = body_of(Code.CONSUME_MESSAGE_DIRECTLY, await asking)
    assert found.consume_result == "CR_SUCCESS"


@pytest.mark.parametrize("msg_id", [None, "", "zz", "7F00000100002A9F00000000000FFFFF"])
async def test_a_message_that_does_not_exist_is_not_consumed(
    remoting: RemotingBroker, msg_id: str | None
) -> None:
    await joined(remoting.client)
    header = ConsumeMessageDirectlyRequest("G", "c1", msg_id)
    answer = await remoting.client.ask(Code.CONSUME_MESSAGE_DIRECTLY, header)
    refusals = {ResponseCode.INVALID_PARAMETER, ResponseCode.QUERY_NOT_FOUND}
    assert answer.code in {ResponseCode.SYSTEM_ERROR, *refusals}
    assert "id" in str(answer.remark)
    assert not remoting.client.requests


@pytest.mark.parametrize("client_id", [None, "c2"])
async def test_the_offsets_of_clients_are_collected(
    remoting: RemotingBroker, client_id: str | None
) -> None:
    code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    header = ConsumerStatusRequest("T", "G", client_id)
    async with remoting.another() as other, remoting.another() as admin:
        clients = {"c1": remoting.client, "c2": other}
        for name, client in clients.items():
            await joined(client, name)
        asking = asyncio.ensure_future(admin.ask(code, header))
        wanted = {}
        for number, (name, client) in enumerate(clients.items()):
            if client_id in (None, name):
                asked = await next_request(client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
                offsets = wanted[name] = QueueTable({QUEUE: number + 5})
                client.tell(asked.answer(0, body=encode_body(ConsumerStatusBody(offsets))))
        assert body_of(code, await asking).by_client == wanted


async def test_clients_have_ten_seconds_together(remoting: RemotingBroker) -> None:
    code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    async with remoting.another() as other, remoting.another() as admin:
        silent = [f"c{number}" for number in range(5)]
        for name in silent:
            await joined(remoting.client, name)
        await joined(other, "c9")
        asking = asyncio.ensure_future(admin.ask(code, ConsumerStatusRequest("T", "G")))
        for _ in silent:
            await next_request(remoting.client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
        asked = await next_request(other, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
        offsets = QueueTable({QUEUE: 5})
        other.tell(asked.answer(0, body=encode_body(ConsumerStatusBody(offsets))))
        await other.ask(9_999)
        remoting.running.clock.advance(ANSWER_MS_MAX)
        assert body_of(code, await asking).by_client == {"c9": offsets}


async def test_more_clients_than_a_slot_asks_are_asked(remoting: RemotingBroker) -> None:
    code, count = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, 2 * CLIENTS_A_SLOT
    async with remoting.another() as other, remoting.another() as admin:
        clients = (remoting.client, other)
        for number in range(count):
            await joined(clients[number % 2], f"c{number}")
        asking = asyncio.ensure_future(admin.ask(code, ConsumerStatusRequest("T", "G")))
        body = encode_body(ConsumerStatusBody(QueueTable({QUEUE: 5})))
        for number in range(count):
            client = clients[number % 2]
            asked = await next_request(client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
            client.tell(asked.answer(0, body=body))
        assert len(body_of(code, await asking).by_client) == count


async def test_offsets_of_clients_that_fail_are_left_out(remoting: RemotingBroker) -> None:
    code = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    wrong: list[dict[str, Any]] = [
        {"code": ResponseCode.SYSTEM_ERROR},
        {"code": 0, "body": b"{"},
        {"code": 0},
    ]
    async with remoting.another() as admin:
        for number in range(len(wrong)):
            await joined(remoting.client, f"c{number}")
        asking = asyncio.ensure_future(admin.ask(code, ConsumerStatusRequest("T", "G")))
        for fields in wrong:
            asked = await next_request(remoting.client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
            remoting.client.tell(asked.answer(**fields))
        assert body_of(code, await asking).by_client == {}
        asking = asyncio.ensure_future(admin.ask(code, ConsumerStatusRequest("T", "G")))
        asked = await next_request(remoting.client, Code.GET_CONSUMER_STATUS_FROM_CLIENT)
        remoting.client.tell(asked.answer(0, body=bytes(1 << 20)))
        assert (await asking).code == ResponseCode.INVALID_PARAMETER
        answer = await admin.ask(code, ConsumerStatusRequest("T", "none"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "No Any Consumer online" in str(answer.remark)
