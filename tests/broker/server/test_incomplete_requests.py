"""Incomplete requests, and the limits that end them: clock and bytes are the tests'."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from rocketpy_broker.config import KIB, MIB
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.calls import incomplete_requests
from rocketpy_broker.server.calls.connection_traffic import Traffic
from rocketpy_broker.server.calls.incomplete_requests import (
    BEGIN_COUNT,
    CALM_FACTOR,
    CALM_LOOKS,
    OLD_INTERVAL_MS,
    UNFINISHED_MS_MAX,
    IncompleteRequests,
)
from rocketpy_broker.server.calls.senders import (
    HEAD_BYTES,
    HELD_BYTES_MAX,
    LOOK_INTERVAL_MS,
    PROGRESS_BYTES,
    STANDSTILL_MS_MAX,
    STRANGERS_BYTES_MAX,
)

REQUEST_BYTES_MAX = 8 * MIB
STRANGERS_MAX = STRANGERS_BYTES_MAX // REQUEST_BYTES_MAX
KNOWN_MAX = HELD_BYTES_MAX // REQUEST_BYTES_MAX


class Call:
    """A gRPC call; a read ends when its request comes or the call is aborted."""

    def __init__(self, requests: IncompleteRequests, peer: str) -> None:
        self._peer = peer
        self._unfinished = requests
        self._request: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.code: grpc.StatusCode | None = None
        self.reading = asyncio.ensure_future(requests.first(self))

    def peer(self) -> str:
        return self._peer

    async def read(self) -> bytes:
        return await self._request

    async def abort(self, code: grpc.StatusCode, _details: str) -> None:
        self.code = code
        if not self._request.done():
            self._request.set_exception(grpc.aio.AbortError())
        raise grpc.aio.AbortError

    async def come(self, size: int = 7) -> None:
        self._request.set_result(bytes(size))
        await self.reading

    def read_next(self) -> None:
        self._request = asyncio.get_running_loop().create_future()
        self.reading = asyncio.ensure_future(self._unfinished.next(self))


class Calls:
    """The calls of a server, by when they began."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.traffic: dict[str, Traffic] = {}
        self.looks = 0
        self.unfinished = IncompleteRequests(clock, REQUEST_BYTES_MAX, self._look)
        self.all: list[Call] = []

    async def _look(self, peers: list[str]) -> dict[str, Traffic]:
        self.looks += 1
        return {peer: self.traffic[peer] for peer in peers if peer in self.traffic}

    async def begin(self, count: int, peer: str = "ipv4:10.0.0.1:{}") -> list[Call]:
        begun = [Call(self.unfinished, peer.format(len(self.all) + n)) for n in range(count)]
        self.all += begun
        for each in begun:
            self.traffic.setdefault(each.peer(), Traffic(0, 0))
        await passes()
        return begun

    async def known(self, count: int) -> list[Call]:
        """Begins streams that have had a large request accepted, and wait for the next."""
        calls = await self.begin(count)
        for each in calls:
            self.receive(each, REQUEST_BYTES_MAX)
            await each.come(REQUEST_BYTES_MAX)
            each.read_next()
        await self.wait(LOOK_INTERVAL_MS)
        return calls

    async def crowd(self) -> None:
        """Begins `KNOWN_MAX` + 1 idle streams, so that there is something to look at."""
        for each in await self.begin(KNOWN_MAX + 1, "ipv4:10.0.1.1:{}"):
            await each.come()
            each.read_next()
        await passes()

    async def wait(self, delta_ms: int) -> None:
        for _ in range(0, delta_ms, LOOK_INTERVAL_MS):
            self.clock.advance(LOOK_INTERVAL_MS)
            await passes()

    def receive(self, call: Call, count: int) -> None:
        sent, received = self.traffic[call.peer()]
        self.traffic[call.peer()] = Traffic(sent, received + count)

    def aborted(self) -> list[Call]:
        return [each for each in self.all if each.code is not None]


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


async def test_n14_beyond_the_bound_who_has_stood_still_for_longest_ends() -> None:
    async with all_calls() as calls:
        senders = await calls.known(KNOWN_MAX + 2)
        for each in senders:
            calls.receive(each, REQUEST_BYTES_MAX - KIB)
            await calls.wait(LOOK_INTERVAL_MS)
        assert not calls.aborted()
        await calls.wait(2 * STANDSTILL_MS_MAX)
        assert calls.aborted() == senders[:2]
        assert {each.code for each in calls.aborted()} == {grpc.StatusCode.UNAVAILABLE}
        await calls.wait(2 * UNFINISHED_MS_MAX)
        assert calls.aborted() == senders[:2]


async def test_n14_who_gets_on_does_not_end_however_slowly_all_send() -> None:
    """Sends on forty streams of a slow link, in turn; together they exceed the room."""
    async with all_calls() as calls:
        senders = await calls.known(40)
        while calls.unfinished.held < 2 * HELD_BYTES_MAX:
            for each in senders:
                calls.receive(each, 64 * KIB)
                if senders.index(each) % 2:
                    await calls.wait(LOOK_INTERVAL_MS)
            assert not calls.aborted()


async def test_n14_who_stands_still_makes_room_for_those_that_get_on() -> None:
    async with all_calls() as calls:
        await calls.crowd()
        stalled = await calls.known(KNOWN_MAX)
        for each in stalled:
            calls.receive(each, REQUEST_BYTES_MAX - KIB)
        await calls.wait(10 * STANDSTILL_MS_MAX)
        assert not calls.aborted()
        [sender] = await calls.begin(1)
        for _ in range(8):
            calls.receive(sender, MIB)
            await calls.wait(LOOK_INTERVAL_MS)
        assert calls.aborted() == stalled[:1]


async def test_n14_a_flood_of_strangers_is_bounded_though_all_get_on() -> None:
    async with all_calls() as calls:
        strangers = await calls.begin(100)
        most = 0
        for _ in range(16):
            for each in strangers:
                if each.code is None:
                    calls.receive(each, REQUEST_BYTES_MAX // 16 - 64)
            await calls.wait(LOOK_INTERVAL_MS)
            most = max(most, calls.unfinished.held)
        assert most <= STRANGERS_BYTES_MAX
        # The call that came first is not aborted.
        assert STRANGERS_MAX // 2 <= 100 - len(calls.aborted()) <= STRANGERS_MAX
        assert not strangers[0].code


async def test_n14_beside_a_flood_those_that_send_slowly_go_on() -> None:
    async with all_calls() as calls:
        fast = await calls.begin(60)
        slow = await calls.begin(40)
        for _ in range(12):
            for each in fast:
                calls.receive(each, 600 * KIB if each.code is None else 0)
            for each in slow:
                calls.receive(each, 20 * KIB)
            await calls.wait(LOOK_INTERVAL_MS)
        assert calls.aborted()
        assert not any(each.code for each in slow)


async def test_n14_who_had_large_requests_taken_is_no_stranger() -> None:
    async with all_calls() as calls:
        senders = await calls.known(100)
        for each in senders:
            calls.receive(each, REQUEST_BYTES_MAX - KIB)
        await calls.wait(STANDSTILL_MS_MAX - LOOK_INTERVAL_MS)
        assert not calls.aborted()


async def test_n14_small_requests_and_trickles_end_for_nobody() -> None:
    async with all_calls() as calls:
        small = await calls.begin(500)
        for each in small:
            calls.receive(each, 60 * KIB)
        big = await calls.known(KNOWN_MAX + 10)
        for each in big:
            calls.receive(each, REQUEST_BYTES_MAX)
        await calls.wait(2 * STANDSTILL_MS_MAX)
        assert calls.aborted()
        assert not any(each.code for each in small)


async def test_n14_a_stream_that_idles_is_believed_to_hold_nothing() -> None:
    """Asserts that its frames, signs of life and pull windows count as no requests."""
    async with all_calls() as calls:
        await calls.crowd()
        [stream] = await calls.known(1)
        assert calls.unfinished.held == 0
        for n in range(1, 1_000):
            calls.traffic[stream.peer()] = Traffic(n * MIB, REQUEST_BYTES_MAX + n * 2 * KIB)
            await calls.wait(LOOK_INTERVAL_MS)
        assert calls.unfinished.held == 0


async def test_n14_small_calls_of_a_connection_do_not_add_up() -> None:
    async with all_calls() as calls:
        await calls.crowd()
        [idle] = await calls.begin(1, "ipv4:10.0.0.1:1")
        for _ in range(1_000):
            [small] = await calls.begin(1, "ipv4:10.0.0.1:1")
            calls.receive(small, HEAD_BYTES)
            await small.come(100)
        await calls.wait(LOOK_INTERVAL_MS)
        assert calls.unfinished.held == 0
        calls.receive(idle, MIB)
        await calls.wait(2 * LOOK_INTERVAL_MS)
        assert calls.unfinished.held == MIB


async def test_n14_what_a_connection_holds_is_bounded_by_its_requests() -> None:
    async with all_calls() as calls:
        await calls.crowd()
        shared = await calls.begin(2, "ipv4:10.0.0.1:1")
        calls.receive(shared[0], 100 * MIB)
        await calls.wait(LOOK_INTERVAL_MS)
        assert calls.unfinished.held == 2 * REQUEST_BYTES_MAX


async def test_n14_all_requests_of_a_connection_end_together() -> None:
    async with all_calls() as calls:
        shared = await calls.begin(incomplete_requests.ENDED_MAX + 10, "ipv4:10.0.0.1:1")
        calls.receive(shared[0], 2 * HELD_BYTES_MAX)
        await calls.wait(LOOK_INTERVAL_MS)
        assert len(calls.aborted()) == incomplete_requests.ENDED_MAX
        await calls.wait(STANDSTILL_MS_MAX + LOOK_INTERVAL_MS)
        assert calls.unfinished.held <= STRANGERS_BYTES_MAX


async def test_n14_time_in_which_the_loop_stood_still_is_nobodys() -> None:
    async with all_calls() as calls:
        senders = await calls.known(KNOWN_MAX + 2)
        for each in senders:
            calls.receive(each, REQUEST_BYTES_MAX - KIB)
        await calls.wait(LOOK_INTERVAL_MS)
        calls.clock.advance(10 * STANDSTILL_MS_MAX)
        await passes()
        assert not calls.aborted()


async def test_n14_another_connection_from_the_same_port_begins_anew() -> None:
    async with all_calls() as calls:
        await calls.crowd()
        [stream] = await calls.known(1)
        calls.traffic[stream.peer()] = Traffic(0, PROGRESS_BYTES)
        await calls.wait(LOOK_INTERVAL_MS)
        assert calls.unfinished.held == PROGRESS_BYTES


async def test_n14_a_first_request_has_two_minutes_and_a_later_one_any_time() -> None:
    async with all_calls() as calls:
        [stream] = await calls.known(1)
        [slow] = await calls.begin(1)
        calls.clock.advance(UNFINISHED_MS_MAX - 1)
        await passes()
        assert not calls.aborted()
        await calls.wait(OLD_INTERVAL_MS)
        assert calls.aborted() == [slow]
        await calls.wait(2 * UNFINISHED_MS_MAX)
        assert stream.code is None


async def test_n14_where_nothing_tells_a_request_has_two_minutes() -> None:
    async with all_calls() as calls:
        await calls.begin(100)
        calls.traffic.clear()
        await calls.wait(UNFINISHED_MS_MAX - LOOK_INTERVAL_MS)
        assert not calls.aborted()
        await calls.wait(10 * LOOK_INTERVAL_MS)
        assert len(calls.aborted()) == 100


async def test_n14_a_request_that_comes_while_its_call_is_ended_is_not_taken_up() -> None:
    async with all_calls() as calls:
        [slow] = await calls.begin(1)
        calls.unfinished._end(slow)
        with pytest.raises(asyncio.CancelledError):
            await slow.come()


async def test_n14_without_requests_nobody_looks() -> None:
    async with all_calls() as calls:
        [call] = await calls.begin(1)
        await calls.wait(LOOK_INTERVAL_MS)
        await call.come()
        await calls.wait(LOOK_INTERVAL_MS)
        looks = calls.looks
        await calls.wait(STANDSTILL_MS_MAX)
        assert calls.looks == looks


async def test_n14_nobody_looks_at_requests_that_could_not_hold_too_much() -> None:
    async with all_calls() as calls:
        await calls.begin(STRANGERS_MAX)
        await calls.wait(2 * OLD_INTERVAL_MS)
        assert calls.looks == 0
        await calls.begin(1)
        assert calls.looks == 1


async def test_n14_streams_that_idle_cost_a_look_now_and_then_until_others_begin() -> None:
    async with all_calls() as calls:
        await calls.crowd()
        await calls.wait(CALM_LOOKS * LOOK_INTERVAL_MS)
        looks = calls.looks
        await calls.wait(CALM_FACTOR * 10 * LOOK_INTERVAL_MS)
        assert calls.looks == looks + 10
        [*_, one] = await calls.begin(BEGIN_COUNT)
        assert calls.looks == looks + 11
        calls.receive(one, MIB)
        await calls.wait(LOOK_INTERVAL_MS)
        assert calls.unfinished.held == MIB


async def test_n14_connections_that_are_gone_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incomplete_requests, "SENDERS_MIN", 10)
    async with all_calls() as calls:
        calls.unfinished._senders_max = 10
        for _ in range(20):
            [each] = await calls.begin(1)
            await each.come()
            del calls.traffic[each.peer()]
        await calls.begin(1)
        await calls.wait(OLD_INTERVAL_MS)
        assert len(calls.unfinished._senders) == 1


async def test_n14_ended_requests_are_told_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with all_calls() as calls:
        await calls.begin(5)
        await calls.wait(30_000)
        await calls.begin(1)
        await calls.wait(UNFINISHED_MS_MAX + OLD_INTERVAL_MS)
        assert calls.unfinished.ended == 6
        await calls.begin(1)
        await calls.wait(UNFINISHED_MS_MAX + OLD_INTERVAL_MS)
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert ["; 0 more" in lines[0], "; 5 more" in lines[1]] == [True, True]
    assert len(lines) == 2
