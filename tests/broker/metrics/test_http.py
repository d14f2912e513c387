"""The HTTP server: its answers, and the cost of clients that misuse it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from rocketpy_broker import LocalBroker, LocalBrokerError
from rocketpy_broker.server.bind_address import PortInUseError
from rocketpy_broker.server.http.connections import CONNECTIONS_OF_HOST, REQUEST_SECONDS
from rocketpy_broker.server.http.server import PATHS
from tests.broker.metrics.scrape import get, parsed, scrape
from tests.broker.metrics.stopping_broker import TRIES_MAX, stopping
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.time_limits import WAIT_SECONDS_MAX

# All of 127/8 are addresses of this machine.
OTHER_HOST = ("127.0.0.2", 0)


def url(running: RunningBroker, path: str) -> str:
    return f"http://127.0.0.1:{running.ready.http_port}{path}"


def watch(running: RunningBroker, value: Callable[[], float]) -> None:
    """Adds a gauge, which each snapshot reads."""
    metrics = running.broker.services.metrics
    assert metrics is not None
    metrics.watch("rocketpy_store_writable", value)


async def test_without_a_port_nothing_listens_and_nothing_is_counted(
    running: RunningBroker,
) -> None:
    assert running.ready.http_port is None
    assert running.broker.services.metrics is None


async def test_health_tells_whether_messages_are_taken(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(http_port=0) as running:
        status, text = await get(running, "/healthz")
        assert (status, json.loads(text)) == (
            200,
            {"status": "serving", "writable": True, "refusal": ""},
        )
        running.broker.store.flush_failed(OSError(5, "Input/output error"))
        status, text = await get(running, "/healthz")
        found = json.loads(text)
        assert (status, found["status"], found["writable"]) == (200, "serving", False)
        assert "Input/output error" in found["refusal"]
        assert (await scrape(running)).value("rocketpy_store_writable") == 0


async def test_health_tells_of_a_full_disk(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_broker(http_port=0) as running:
        monkeypatch.setattr("rocketpy_broker.store.message_store.used_ratio", lambda _: 0.95)
        running.broker.store.expired_segment_count(manual=False)
        status, text = await get(running, "/healthz")
        assert (status, json.loads(text)["writable"]) == (200, False)
        assert "free space" in json.loads(text)["refusal"]


async def test_health_tells_that_the_broker_stops_while_calls_are_let_end(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stopping(start_broker, monkeypatch) as running:
        for _ in range(TRIES_MAX):
            status, text = await get(running, "/healthz")
            if status != 200:
                break
    assert (status, json.loads(text)["status"]) == (503, "stopping")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/unknown", 404),
        ("GET", "/metrics/..%2f..%2fetc/passwd", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("HEAD", "/healthz", 200),
        ("GET", "/metrics?name[]=up", 200),
    ],
)
async def test_what_it_does_not_know_is_answered_and_changes_nothing(
    start_broker: StartBroker, method: str, path: str, status: int
) -> None:
    async with start_broker(http_port=0) as running, aiohttp.ClientSession() as session:
        async with session.request(method, url(running, path)) as response:
            assert response.status == status
            text = await response.text()
        assert (status != 404) or text == PATHS


@pytest.mark.parametrize(
    "request_text",
    [
        b"NONSENSE\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nLong: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_a_request_that_is_none_is_refused(
    start_broker: StartBroker, request_text: bytes
) -> None:
    async with start_broker(http_port=0) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.ready.http_port)
        writer.write(request_text)
        answer = await reader.readline()
        assert answer.startswith(b"HTTP/1.")
        assert b" 400 " in answer
        writer.close()
        assert (await get(running, "/healthz"))[0] == 200


async def test_connections_that_do_nothing_are_few_and_end(start_broker: StartBroker) -> None:
    async with start_broker(http_port=0) as running:
        port = running.ready.http_port
        idle = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_OF_HOST)
        ]
        http = running.broker.http
        assert http is not None
        await until(lambda: http.connection_count == CONNECTIONS_OF_HOST)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        # Clients at other addresses are served meanwhile.
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=OTHER_HOST)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        for _ in range(REQUEST_SECONDS + 1):
            running.clock.advance(1_000)
            await asyncio.sleep(0)
        for reader, writer in idle:
            assert await reader.read() == b""
            writer.close()
        await until(lambda: http.connection_count == 0)
        assert (await get(running, "/healthz"))[0] == 200


async def test_many_who_ask_at_once_share_one_snapshot(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    def counted() -> float:
        nonlocal taken
        taken += 1
        return taken

    async with start_broker(http_port=0) as running:
        watch(running, counted)
        answers = await asyncio.gather(*(get(running, "/metrics") for _ in range(20)))
        assert len(set(answers)) == 1
        assert taken == 1
        running.clock.advance(1_001)
        await get(running, "/metrics")
        assert taken == 2


async def test_a_fault_is_logged_and_the_next_request_is_served(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_broker(http_port=0) as running:
        divisors = [1, 0]
        watch(running, lambda: 1 / divisors.pop() if divisors else 1)
        status, text = await get(running, "/metrics")
        assert (status, "and logged it" in text) == (500, True)
        assert "ZeroDivisionError" in caplog.text
        running.clock.advance(1_001)
        assert (await get(running, "/metrics"))[0] == 200


async def test_a_port_that_is_taken_is_named(start_broker: StartBroker, tmp_path: Path) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as listening:
        taken = listening.sockets[0].getsockname()[1]
        with pytest.raises(PortInUseError) as refused:
            async with start_broker(http_port=taken):
                pass
    assert "--http-port" in refused.value.remark


def test_a_local_broker_serves_it_over_restarts(tmp_path: Path) -> None:
    with LocalBroker(http_port=0) as broker:
        broker.create_topic("orders")
        broker.send("orders", ["a", "b"])
        endpoint = broker.http_endpoint
        broker.restart()
        assert broker.http_endpoint == endpoint
        assert broker.console_url == f"http://{endpoint}/"
        with urllib.request.urlopen(
            f"http://{endpoint}/metrics", timeout=WAIT_SECONDS_MAX
        ) as response:
            found = parsed(response.read().decode())
    assert found.value("rocketmq_topic_number") > 1
    without = LocalBroker()
    with pytest.raises(LocalBrokerError, match="http_port"):
        assert without.console_url


def test_a_broker_without_it_loads_none_of_its_libraries() -> None:
    program = (
        "import sys, rocketpy_broker.broker; from rocketpy_broker.cli.commands import imported;"
        "imported();"
        "print([name for name in ('aiohttp', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.stdout.strip() == "[]"
