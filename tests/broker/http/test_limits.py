"""Limits of the JSON API: one client takes nothing that another client needs."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketpy_broker.messages.json_input import json_message
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.server.http.api.answers import message_json
from rocketpy_broker.server.http.api.endpoint import LARGE_ANSWERS_MAX, LARGE_ANSWERS_OF_HOST
from rocketpy_broker.server.http.connections import AHEAD_BYTES_MAX
from rocketpy_broker.server.security.attempts import PAIR
from rocketpy_broker.services.admin.store_admin_service import ANSWER_BYTES_MAX
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.sys_flag import COMPRESSED
from tests.broker.http.api_client import JSON_TYPE, Reply, ask, get
from tests.broker.http.test_answers import message
from tests.support.blocks import wire_block
from tests.support.broker.clients.users import GROUP, SECRETS, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.time_limits import WAIT_SECONDS_MAX

# All of 127/8 are addresses of this machine.
OTHER_HOST = ("127.0.0.2", 0)
MESSAGES = "/topics/orders/queues/0/messages"
GET_MESSAGES = f"GET /api/v1{MESSAGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_guesses_of_a_secret_key_hold_no_places_of_others(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        attempts = running.broker.services.access.attempts

        def guess() -> asyncio.Task[Reply]:
            return asyncio.create_task(ask(running, "GET", MESSAGES, user=("guest", "wrong")))

        for _ in range(PAIR.free):
            assert (await guess()).status == 401
        guesses = [guess() for _ in range(LARGE_ANSWERS_MAX)]
        await until(lambda: attempts.waiting > 0)
        user = "reader", SECRETS["reader"]
        letters = ask(running, "GET", f"/groups/{GROUP}/dead-letters", user=user)
        reply = await asyncio.wait_for(letters, WAIT_SECONDS_MAX)
        assert reply.error == (404, ResponseCode.TOPIC_NOT_EXIST)
        for each in guesses:
            each.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)


@pytest.fixture
async def running_large(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    async with start_broker(http_port=0, commit_log_segment_bytes=16 << 20) as running:
        yield running


async def test_unread_answers_of_one_address_leave_places_to_others(
    running_large: RunningBroker,
) -> None:
    http, port = running_large.broker.http, running_large.ready.http_port
    async with unread_answers(running_large, 2 * LARGE_ANSWERS_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=OTHER_HOST)
        writer.write(GET_MESSAGES.replace(b"localhost\r\n", b"localhost\r\nConnection: close\r\n"))
        answer = await asyncio.wait_for(reader.read(1 << 23), WAIT_SECONDS_MAX)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert http is not None
        waiting = [each for each in http.connections if each.unread_bytes > 0]
        assert sum("127.0.0.1:" in each.peer for each in waiting) <= LARGE_ANSWERS_OF_HOST
        writer.close()


@asynccontextmanager
async def unread_answers(running: RunningBroker, count: int) -> AsyncIterator[None]:
    """Leaves large answers to `count` requests unread, as far as the broker makes them."""
    await running.create_topic("orders", queues=1)
    await running.append("orders", 0, b"x" * 4_000_000)
    loop, http = asyncio.get_running_loop(), running.broker.http
    assert http is not None
    with contextlib.ExitStack() as clients:
        for _ in range(count):
            client = clients.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", running.ready.http_port))
            await loop.sock_sendall(client, GET_MESSAGES)
        made = min(count, LARGE_ANSWERS_OF_HOST)
        await until(lambda: sum(each.unread_bytes > 0 for each in http.connections) >= made)
        yield


@pytest.mark.parametrize("kind", ["groups", "producers"])
async def test_lists_without_pages_are_made_for_a_few_requests_at_a_time(
    running_large: RunningBroker, kind: str
) -> None:
    """Covers 100,000 clients of one group, whose JSON has 11 MiB; messages share its limit."""
    async with unread_answers(running_large, LARGE_ANSWERS_OF_HOST):
        asked = asyncio.create_task(ask(running_large, "GET", f"/{kind}/billing/clients"))
        for _ in range(3):
            await get(running_large, "/openapi.json")
        assert not asked.done()
    assert (await asked).status == 200


def test_a_value_of_any_depth_is_no_text() -> None:
    refused = 0
    for depth in range(sys.getrecursionlimit()):
        text = b'{"body": ' + b"[" * depth + b'"' * 2 * (not depth) + b"]" * depth + b"}"
        try:
            json_message(text)
        except ValueError:
            refused += 1
    assert refused == sys.getrecursionlimit() - 1


class FaultyClock(ManualClock):
    """A clock that fails while it is broken."""

    is_broken = False

    def now_ms(self) -> int:
        if self.is_broken:
            raise ZeroDivisionError
        return super().now_ms()


async def test_a_failure_is_logged_without_text_of_the_client(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FaultyClock()
    async with start_broker(http_port=0, clock=clock) as running:
        clock.is_broken = True
        reply = await ask(running, "GET", "/topics/a%0Aforged")
        clock.is_broken = False
    assert reply.error == (500, ResponseCode.SYSTEM_ERROR)
    [line] = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith("HTTP GET /api/v1/topics/{topic} failed for 127.0.0.1 with ZeroDivision")


async def test_requests_far_ahead_of_their_replies_end_the_connection(
    running_http: RunningBroker,
) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    count = AHEAD_BYTES_MAX // len(request)
    reader, writer = await asyncio.open_connection("127.0.0.1", running_http.ready.http_port)
    replies = 0
    with contextlib.suppress(ConnectionError):
        for sends in range(1, 11):
            writer.write(request * count)
            while replies < sends * 20 and not reader.at_eof():
                replies += (await reader.read(1_000)).count(b"HTTP/1.1 200")
        while found := await reader.read(1 << 16):
            replies += found.count(b"HTTP/1.1 200")
            if replies >= 9 * count:
                break
    assert replies < 9 * count
    writer.close()


async def test_a_compressed_body_is_refused_and_not_inflated(running_http: RunningBroker) -> None:
    body = gzip.compress(b"{}")
    headers = {**JSON_TYPE, "Content-Encoding": "gzip"}
    reply = await ask(running_http, "PUT", "/topics/orders", body, headers)
    assert reply.error == (415, ResponseCode.INVALID_PARAMETER)
    assert "Content-Encoding is 'gzip', accepted is identity" in reply.json["message"]
    plain = {**JSON_TYPE, "Content-Encoding": "identity"}
    assert (await ask(running_http, "PUT", "/topics/orders", b"{}", plain)).status == 200


def test_a_body_is_inflated_as_far_as_it_is_shown() -> None:
    # Its end is missing, which only a whole inflation notices.
    bomb = zlib.compress(b"0" * 1_000_000)[:-8]
    encoded, size = message_json(message(bomb, COMPRESSED), 100)
    found = json.loads(encoded)
    assert (found["body"], found["bodyIsCut"], size) == ("0" * 100, True, 100)
    assert "bodyError" not in found
    assert json.loads(message_json(message(bomb, COMPRESSED), 1 << 20)[0])["bodyError"]


async def test_messages_of_a_key_come_in_pages_of_a_few_bytes(
    running_large: RunningBroker,
) -> None:
    await running_large.create_topic("orders", queues=1)
    body = b"x" * 3_000_000
    assert len(body) < ANSWER_BYTES_MAX < 2 * len(body)
    for _ in range(2):
        await running_large.append_block("orders", 0, wire_block("orders", [body], keys=["k"]))
    newest = await get(running_large, "/topics/orders/messages?key=k")
    before = newest["nextBeforeOffset"]
    older = await get(running_large, f"/topics/orders/messages?key=k&beforeOffset={before}")
    pages = [[each["queueOffset"] for each in page["messages"]] for page in (newest, older)]
    assert pages == [[1], [0]]
