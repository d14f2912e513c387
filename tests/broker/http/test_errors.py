"""Errors of the JSON API: their HTTP status, the contract's code, and what they change: nothing."""

from __future__ import annotations

import asyncio
import errno
from contextlib import ExitStack

import pytest

from rocketpy_broker.server.calls.guard import STREAMS_MAX
from rocketpy_broker.server.http.api.endpoint import BODY_BYTES_MAX
from rocketpy_proto.model.codes import ResponseCode
from tests.broker.http.api_client import ask, get
from tests.broker.metrics.stopping_broker import TRIES_MAX, stopping
from tests.support.broker.running_broker import RunningBroker, StartBroker
from tests.support.store.disk_calls import before_call, failing

BAD, BUSY = ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_BUSY
UNKNOWN = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
# An id of an address that no broker of these tests has.
OTHER_ID = "7F00000100000001" + "0" * 16


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/topics/none", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("GET", "/topics/none/queues", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("GET", "/topics/none/queues/0/messages", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("GET", "/topics/orders/queues/9/messages", 400, BAD),
        ("GET", "/topics/orders/queues/one/messages", 400, BAD),
        ("GET", "/topics/orders/queues/0/messages?offset=-1", 400, BAD),
        ("GET", "/topics/orders/queues/0/messages?offset=9223372036854775808", 400, BAD),
        ("GET", "/topics/orders/queues/0/messages?offset=9223372036854775807", 400, BAD),
        ("GET", "/topics/orders/queues/99999999999/messages", 400, BAD),
        ("GET", "/topics/orders/queues/0/offset?timestamp=yesterday", 400, BAD),
        ("GET", "/topics/orders/queues/0/offset?timestamp=2026-05-01T08:00:00", 400, BAD),
        ("GET", "/topics/orders/messages", 400, BAD),
        ("GET", "/topics?includeSystem=yes", 400, BAD),
        ("GET", "/topics?countMax=-1", 400, BAD),
        ("GET", "/topics?count_max=1", 400, BAD),
        ("GET", "/topics?after=a&after=b", 400, BAD),
        ("GET", "/broker?verbose=true", 400, BAD),
        ("GET", "/groups/none", 404, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ("GET", "/groups/none/dead-letters", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("GET", "/groups/none/topics/none", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("GET", f"/topics/{'x' * 300}", 400, BAD),
        ("GET", "/messages/none", 400, BAD),
        ("GET", f"/messages/{OTHER_ID}", 404, ResponseCode.QUERY_NOT_FOUND),
        ("GET", "", 404, UNKNOWN),
        ("GET", "/nothing", 404, UNKNOWN),
        ("GET", "/topics/orders/../../../metrics", 404, UNKNOWN),
        ("POST", "/topics", 405, UNKNOWN),
        ("DELETE", "/topics/none", 404, ResponseCode.TOPIC_NOT_EXIST),
        ("DELETE", "/broker", 405, UNKNOWN),
        ("OPTIONS", "/topics", 405, UNKNOWN),
    ],
)
async def test_an_error_has_the_code_of_the_contract_and_a_status(
    running_http: RunningBroker, method: str, path: str, status: int, code: int
) -> None:
    await running_http.create_topic("orders", queues=1)
    reply = await ask(running_http, method, path)
    assert reply.error == (status, code), reply
    assert reply.headers["Content-Type"] == "application/json"
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert (status == 405) == ("Allow" in reply.headers)


async def test_a_group_without_dead_letters_needs_no_topic_from_the_client(
    running_http: RunningBroker,
) -> None:
    reply = await ask(running_http, "GET", "/groups/none/dead-letters")
    assert reply.json["message"] == (
        "topic '%DLQ%none' does not exist; the broker creates it for the first such message of "
        "the group"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "JSON object"),
        (b"[]", "JSON object"),
        (b"[" * 9_000, "JSON object"),
        ({"queues": 3}, "'queues', accepted is any of"),
        ({"topic": "other"}, "'topic', accepted is any of"),
        ({"readQueueNums": "3"}, "readQueueNums is '3', accepted is a whole number"),
        ({"readQueueNums": True}, "readQueueNums is True, accepted is a whole number"),
        ({"readQueueNums": 1 << 31}, "readQueueNums is 2147483648"),
        ({"readQueueNums": 1.5}, "readQueueNums is 1.5"),
        ({"readQueueNums": None}, "readQueueNums is None"),
        ({"order": 1}, "order is 1, accepted is true or false"),
        ({"attributes": ["+message.type"]}, "attributes is"),
        ({"attributes": {"+message.type": 1}}, "an object of texts"),
        ({"topicFilterType": "\ud800"}, "topicFilterType"),
    ],
)
async def test_a_body_of_another_form_is_refused(
    running_http: RunningBroker, body: object, said: str
) -> None:
    reply = await ask(running_http, "PUT", "/topics/orders", body)
    assert reply.error == (400, BAD)
    assert said in reply.json["message"]
    assert (await get(running_http, "/topics"))["configs"] == []


@pytest.mark.parametrize("size", [BODY_BYTES_MAX, 1_000_000])
async def test_a_long_body_is_refused(running_http: RunningBroker, size: int) -> None:
    body = {"attributes": {"+message.type": "x" * size}}
    reply = await ask(running_http, "PUT", "/topics/orders", body)
    assert reply.error == (413, BAD)


async def test_a_read_with_a_body_is_refused(running_http: RunningBroker) -> None:
    assert (await ask(running_http, "GET", "/topics", {"after": "a"})).error == (400, BAD)


async def test_beyond_the_limits_of_calls_the_api_is_busy(running_http: RunningBroker) -> None:
    await running_http.create_topic("orders", queues=1)
    # The limit of streams, which sends share with gRPC's.
    streams = running_http.broker.server.guard.streams
    with ExitStack() as taken:
        for number in range(STREAMS_MAX):
            taken.enter_context(streams.stream(f"client {number}"))
        reply = await ask(running_http, "POST", "/topics/orders/messages", {"body": "x"})
        assert reply.error == (503, BUSY)
        assert (await ask(running_http, "GET", "/topics")).status == 200
    assert (await ask(running_http, "POST", "/topics/orders/messages", {"body": "x"})).status == 200


async def test_a_store_that_takes_no_messages_is_not_available(
    running_http: RunningBroker,
) -> None:
    await running_http.create_topic("orders", queues=1)
    running_http.broker.store.flush_failed(OSError(5, "Input/output error"))
    reply = await ask(running_http, "POST", "/topics/orders/messages", {"body": "x"})
    assert reply.error == (503, ResponseCode.SERVICE_NOT_AVAILABLE)
    assert "Input/output error" in reply.json["message"]


async def test_an_unexpected_error_is_logged_and_shows_no_trace(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker(http_port=0) as running:
        with monkeypatch.context() as patched:
            before_call(patched, "statvfs", "*", failing(errno.EIO))
            reply = await ask(running, "GET", "/broker/status")
        assert reply.error == (500, ResponseCode.SYSTEM_ERROR)
        assert "OSError" in caplog.text
        assert "OSError" not in reply.json["message"]
        assert (await ask(running, "GET", "/broker/status")).status == 200


async def test_a_broker_that_stops_takes_no_requests(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stopping(start_broker, monkeypatch) as running:
        for _ in range(TRIES_MAX):
            reply = await ask(running, "PUT", "/topics/orders", {})
            if reply.status == 503:
                break
    assert reply.error == (503, ResponseCode.SERVICE_NOT_AVAILABLE)


HEAD = "PUT /api/v1/topics/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "rest",
    [
        "Content-Length: 9\r\n\r\n{",
        "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        "Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
async def test_a_body_that_is_none_is_no_fault_of_the_broker(
    running_http: RunningBroker, caplog: pytest.LogCaptureFixture, rest: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running_http.ready.http_port)
    writer.write(f"{HEAD}{rest}".encode())
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    status = b" 415 " if "Encoding: gzip" in rest or "Encoding: br" in rest else b" 400 "
    assert not answer or status in answer.partition(b"\r\n")[0], answer
    assert (await get(running_http, "/topics"))["configs"] == []
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
