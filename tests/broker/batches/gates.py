"""Calls on the broker's threads, held until a test releases them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.broker.running_broker import until
from tests.support.time_limits import WAIT_SECONDS_MAX


class Gate:
    """A gate that holds the first calls of a method, each on its thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, count: int) -> None:
        self._goes_on = threading.Event()
        self._lock = threading.Lock()
        self._count = count
        self._held = 0
        self._real = getattr(owner, name)
        gate = self

        def call(*arguments: object, **named: object) -> object:
            gate._wait()
            return gate._real(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    def _wait(self) -> None:
        with self._lock:
            is_held = self._held < self._count
            self._held += is_held
        if is_held:
            assert self._goes_on.wait(WAIT_SECONDS_MAX)

    async def reached(self) -> None:
        """Waits until the gate holds its full number of calls."""
        await until(lambda: self._held == self._count)

    def open(self) -> None:
        """Releases the calls."""
        self._goes_on.set()

    def open_soon(self, seconds: float) -> None:
        """Releases the calls while the test's own thread is busy."""
        threading.Timer(seconds, self._goes_on.set).start()


@contextmanager
def holding(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, count: int = 1
) -> Iterator[Gate]:
    """Yields a gate; opens it at the end of the block, so that threads end."""
    gate = Gate(monkeypatch, owner, name, count)
    try:
        yield gate
    finally:
        gate.open()


async def turns(count: int) -> None:
    """Gives the broker time to notice a call that was cut off."""
    for _ in range(count):
        await asyncio.sleep(0.001)
