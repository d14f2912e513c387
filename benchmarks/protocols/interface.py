"""The shape of a protocol's client, and of its kinds of bulk work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from rocketpy_broker import LocalBroker


class Client(Protocol):
    """A connection with one small call of each kind at a time; `hold` may run many times."""

    async def send(self, topic: str, queue_id: int, body: bytes) -> None:
        """Sends one message and waits for its acknowledgement."""

    async def pull(self) -> None:
        """Pulls the small message."""

    async def echo(self) -> None:
        """Makes a call that reads and writes no message."""

    async def hold(self, topic: str, queue_id: int, offset: int) -> list[bytes]:
        """Returns the bodies of messages as they come; none at the end of a held call."""


Connect = Callable[[str], AbstractAsyncContextManager[Any]]
# Runs until it is cancelled, with the connection, the work's number, and a counter of its calls.
Work = Callable[[Any, int, Callable[[], None]], Awaitable[None]]


def own_port(broker: LocalBroker) -> str:
    """Returns the broker's address for gRPC."""
    return broker.endpoint


@dataclass(frozen=True)
class Bulk:
    """A kind of bulk work; its works share the connections.

    `address` is where they go, the side's address by default.
    """

    works: Callable[[], Sequence[Work]]
    connections: int
    address: Callable[[LocalBroker], str] | None = None


@dataclass(frozen=True)
class Side:
    """A protocol. `phases` are sets of kinds of `bulk` by their titles.

    A held call waits for one of its topic's `held_queues` queues, or for all of them.
    """

    connect: Connect
    bulk: Mapping[str, Bulk]
    phases: Mapping[str, Sequence[str]]
    held_queues: int
    address: Callable[[LocalBroker], str] = own_port
    is_held_by_topic: bool = False
