"""Room for large blocks: limits in total and by connection, order, and no leaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rocketpy_broker.runtime.shares import InFlightLimiter


class Sender:
    """A block that is under way until it is stored."""

    def __init__(self, in_flight: InFlightLimiter, connection: str, size: int) -> None:
        self.stored = asyncio.Event()
        self.is_in = False
        self.task = asyncio.ensure_future(self._send(in_flight, connection, size))

    async def _send(self, in_flight: InFlightLimiter, connection: str, size: int) -> None:
        async with in_flight.acquire(connection, size):
            self.is_in = True
            await self.stored.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_b09_bytes_in_flight_keep_to_the_bounds_in_all_and_of_a_connection() -> None:
    in_flight = InFlightLimiter(total_max=100, connection_max=60)
    senders = [Sender(in_flight, name, 30) for name in ("a", "a", "a", "b", "b")]
    await settle()
    assert [each.is_in for each in senders] == [True, True, False, True, False]
    assert in_flight.total == 90
    senders[0].stored.set()
    await settle()
    # Connection b had room last: it is a's turn.
    assert [each.is_in for each in senders[2:]] == [True, True, False]
    for each in senders:
        each.stored.set()
    await asyncio.gather(*(each.task for each in senders))
    assert (in_flight.total, in_flight.waiting_count) == (0, 0)


async def test_b09_connections_get_room_in_turn_whatever_they_ask_for() -> None:
    in_flight = InFlightLimiter(total_max=10, connection_max=10)
    order: list[str] = []

    async def send(connection: str) -> None:
        async with in_flight.acquire(connection, 10):
            order.append(connection)
            await asyncio.sleep(0)

    await asyncio.gather(*(send("a") for _ in range(20)), *(send("b") for _ in range(3)))
    assert order[:6] in (["a", "b"] * 3, ["a", "a", "b", "a", "b", "a"])
    assert order.count("a") == 20


async def test_b09_a_block_larger_than_the_bounds_goes_alone() -> None:
    in_flight = InFlightLimiter(total_max=10, connection_max=5)
    large, small = Sender(in_flight, "a", 50), Sender(in_flight, "b", 1)
    await settle()
    assert (large.is_in, small.is_in) == (True, False)
    large.stored.set()
    await settle()
    assert small.is_in
    small.stored.set()
    await small.task
    assert in_flight.total == 0


def _while_waiting(senders: list[Sender]) -> None:
    senders[1].task.cancel()


def _while_in(senders: list[Sender]) -> None:
    senders[0].task.cancel()


def _as_it_gets_room(senders: list[Sender]) -> None:
    senders[0].stored.set()
    senders[1].task.cancel()


@pytest.mark.parametrize("leave", [_while_waiting, _while_in, _as_it_gets_room])
async def test_b09_who_is_cancelled_leaves_no_room_taken(
    leave: Callable[[list[Sender]], None],
) -> None:
    in_flight = InFlightLimiter(total_max=10, connection_max=10)
    senders = [Sender(in_flight, name, 10) for name in ("a", "b", "c")]
    await settle()
    leave(senders)
    for each in senders:
        each.stored.set()
    await asyncio.gather(*(each.task for each in senders), return_exceptions=True)
    assert senders[2].is_in
    assert (in_flight.total, in_flight.waiting_count) == (0, 0)
    assert not in_flight._shares._by_connection


async def test_b09_a_task_that_is_cancelled_after_it_got_room_frees_it() -> None:
    in_flight = InFlightLimiter(total_max=10, connection_max=10)
    await in_flight.take("a", 10)
    waiting = asyncio.ensure_future(in_flight.take("b", 10))
    await settle()
    in_flight.free("a", 10)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert (in_flight.total, in_flight.waiting_count) == (0, 0)


async def test_b09_a_larger_block_is_not_passed_by_smaller_ones_for_ever() -> None:
    in_flight = InFlightLimiter(total_max=100, connection_max=100)
    small = [Sender(in_flight, f"small {number}", 30) for number in range(3)]
    await settle()
    large = Sender(in_flight, "large", 60)
    small += [Sender(in_flight, f"small {number}", 30) for number in range(3, 10)]
    await settle()
    for each in small[:2]:
        each.stored.set()
        await settle()
    assert large.is_in
    for each in [*small, large]:
        each.stored.set()
    await asyncio.gather(*(each.task for each in [*small, large]))
    assert (in_flight.total, in_flight.waiting_count) == (0, 0)
