"""Places of pages: a client holds none while it guesses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rocketpy_broker.server.http.console.endpoint import PAGES_OF_HOST
from rocketpy_broker.server.security.attempts import PAIR
from tests.broker.http.console.topic_browser import Browser, Seen
from tests.support.broker.clients.users import SECRETS, USERS, users_path, write_users
from tests.support.broker.running_broker import RunningBroker, StartBroker, until
from tests.support.time_limits import WAIT_SECONDS_MAX


async def test_guesses_of_a_secret_key_hold_no_places_of_pages(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(http_port=0) as running:
        attempts = running.broker.services.access.attempts

        def guess() -> asyncio.Task[Seen]:
            return asyncio.create_task(Browser(running, ("guest", "wrong")).get("/topics"))

        for _ in range(PAIR.free):
            assert (await guess()).status == 401
        guesses = [guess() for _ in range(PAGES_OF_HOST)]
        await until(lambda: attempts.waiting > 0)
        reader = Browser(running, ("reader", SECRETS["reader"]))
        seen = await asyncio.wait_for(reader.get("/topics"), WAIT_SECONDS_MAX)
        assert seen.status == 200
        for each in guesses:
            each.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)


async def test_a_form_that_never_ends_holds_no_place_of_pages(running_http: RunningBroker) -> None:
    host, port = "127.0.0.1", running_http.ready.http_port
    head = (
        f"POST /new/topic HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    opened = [await asyncio.open_connection(host, port) for _ in range(PAGES_OF_HOST)]
    for _, writer in opened:
        writer.write(head.encode())
    http = running_http.broker.http
    assert http is not None
    await until(lambda: sum(each.is_busy for each in http.connections) == PAGES_OF_HOST)
    seen = await asyncio.wait_for(Browser(running_http).get("/topics"), WAIT_SECONDS_MAX)
    assert seen.status == 200
    for _, writer in opened:
        writer.close()
