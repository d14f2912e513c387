"""Incomplete requests, and the limits for their number and time; the clock is the tests'."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.calls.incomplete_requests import (
    CROWDED_MS_MAX,
    INTERVAL_MS,
    PEERS_MAX,
    READS_MAX,
    READS_OF_CONNECTION,
    UNFINISHED_MS_MAX,
    IncompleteRequests,
)


class Call:
    """A gRPC call; a read ends when its request comes or the call is aborted."""

    def __init__(self, requests: IncompleteRequests, peer: str) -> None:
        self._peer = peer
        self._request: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_read = False
        self.code: grpc.StatusCode | None = None
        self.reading = asyncio.ensure_future(requests.first(self))

    def peer(self) -> str:
        return self._peer

    async def read(self) -> bytes:
        self.is_read = True
        return await self._request

    async def abort(self, code: grpc.StatusCode, _details: str) -> None:
        self.code = code
        if not self._request.done():
            self._request.set_exception(grpc.aio.AbortError())
        raise grpc.aio.AbortError

    async def come(self) -> None:
        self._request.set_result(b"request")
        await self.reading


class Calls:
    """The calls of a server, by when they began."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.unfinished = IncompleteRequests(clock)
        self.all: list[Call] = []

    async def begin(self, count: int, peer: str = "ipv4:10.0.0.1:{}") -> list[Call]:
        """Begins calls, each on a connection of its own."""
        begun = [Call(self.unfinished, peer.format(len(self.all) + n)) for n in range(count)]
        self.all += begun
        await passes()
        return begun

    async def known(self, count: int) -> list[Call]:
        """Begins calls on connections with a completed request."""
        peers = []
        for _ in range(count):
            [first] = await self.begin(1, "ipv4:10.0.0.2:{}")
            await first.come()
            peers.append(first.peer())
        return [call for peer in peers for call in await self.begin(1, peer)]

    async def wait(self, delta_ms: int) -> None:
        for _ in range(0, delta_ms, INTERVAL_MS):
            self.clock.advance(INTERVAL_MS)
            await passes()

    def aborted(self) -> list[Call]:
        return [each for each in self.all if each.code is not None]


def are_read(calls: list[Call]) -> int:
    return sum(each.is_read for each in calls)


async def passes() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def all_calls() -> AsyncIterator[Calls]:
    calls = Calls(ManualClock())
    try:
        async with TaskScope() as scope:
            calls.unfinished.start(scope)
            yield calls
            calls.unfinished.stop()
    finally:
        readings = [each.reading for each in calls.all]
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)


async def test_n14_a_flood_of_strangers_is_bounded() -> None:
    async with all_calls() as calls:
        strangers = await calls.begin(100)
        assert are_read(strangers) == READS_MAX
        await strangers[0].come()
        await passes()
        assert are_read(strangers) == READS_MAX + 1
        strangers[1].reading.cancel()
        await passes()
        assert are_read(strangers) == READS_MAX + 2


async def test_n14_one_connection_has_half_of_the_places() -> None:
    async with all_calls() as calls:
        own = await calls.begin(READS_MAX, "ipv4:10.0.0.3:1")
        assert are_read(own) == READS_OF_CONNECTION
        assert are_read(await calls.begin(READS_OF_CONNECTION)) == READS_OF_CONNECTION


async def test_n14_strangers_delay_no_connection_with_a_completed_request() -> None:
    async with all_calls() as calls:
        known = await calls.known(READS_MAX)
        strangers = await calls.begin(READS_MAX + 1)
        assert are_read(known) == READS_MAX
        assert are_read(strangers) == READS_MAX


async def test_n14_beside_a_flood_those_that_send_slowly_go_on() -> None:
    async with all_calls() as calls:
        known = await calls.known(READS_MAX)
        flood = await calls.begin(2 * READS_MAX)
        slow = await calls.begin(READS_MAX)
        await calls.wait(2 * CROWDED_MS_MAX)
        assert calls.aborted() == flood
        assert are_read(slow) == READS_MAX
        await calls.wait(UNFINISHED_MS_MAX - 2 * CROWDED_MS_MAX - INTERVAL_MS)
        for each in slow + known:
            await each.come()
        assert calls.aborted() == flood


async def test_n14_while_other_calls_wait_a_request_has_twenty_seconds() -> None:
    async with all_calls() as calls:
        stalled = await calls.begin(READS_MAX)
        await calls.wait(CROWDED_MS_MAX)
        assert not calls.aborted()
        [call] = await calls.begin(1)
        assert not call.is_read
        await calls.wait(INTERVAL_MS)
        assert calls.aborted() == stalled
        assert {each.code for each in stalled} == {grpc.StatusCode.UNAVAILABLE}
        assert call.is_read


async def test_n14_a_connection_with_an_ended_request_is_new_again() -> None:
    async with all_calls() as calls:
        [stalled] = await calls.known(1)
        await calls.wait(UNFINISHED_MS_MAX)
        assert calls.aborted() == [stalled]
        await calls.begin(READS_MAX)
        [again] = await calls.begin(1, stalled.peer())
        assert not again.is_read


async def test_n14_a_first_request_has_two_minutes() -> None:
    async with all_calls() as calls:
        [slow] = await calls.begin(1)
        await calls.wait(UNFINISHED_MS_MAX - INTERVAL_MS)
        assert not calls.aborted()
        await calls.wait(INTERVAL_MS)
        assert calls.aborted() == [slow]


async def test_n14_a_request_that_comes_while_its_call_is_ended_is_not_taken_up() -> None:
    async with all_calls() as calls:
        [slow] = await calls.begin(1)
        calls.unfinished._end(slow)
        with pytest.raises(asyncio.CancelledError):
            await slow.come()


async def test_n14_connections_are_forgotten_the_longest_unused_first() -> None:
    async with all_calls() as calls:
        while len(calls.all) <= PEERS_MAX:
            for each in await calls.begin(READS_MAX):
                await each.come()
        is_known = [calls.unfinished.has_called(each.peer()) for each in calls.all]
        assert is_known == [False] * (len(is_known) - PEERS_MAX) + [True] * PEERS_MAX


async def test_n14_ended_requests_are_told_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with all_calls() as calls:
        await calls.begin(5)
        await calls.wait(30_000)
        await calls.begin(1)
        await calls.wait(UNFINISHED_MS_MAX)
        assert calls.unfinished.ended == 6
        await calls.begin(1)
        await calls.wait(UNFINISHED_MS_MAX)
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert ["; 0 more" in lines[0], "; 5 more" in lines[1]] == [True, True]
    assert len(lines) == 2
