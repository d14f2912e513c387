"""A simulated network between brokers of one event loop: delays, pieces, cuts and resets.

Bytes of a connection come in their order, in pieces. While the link is cut or a side is frozen,
they wait, as TCP sends them again. A killed process resets its connections; a machine without
power is silent until it is up again.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from rocketpy_broker.runtime.clock import sleep
from tests.faults.simulation.loop import SimulatedLoop, VirtualClock

FIRST_PORT = 40_000
BUFFER_BYTES = 64 << 10


@dataclass(eq=False)
class Process:
    """A process with an address; one that `is_gone` sends nothing more."""

    host: str
    is_gone: bool = False


# The process of a task, and of the tasks that it starts.
process: ContextVar[Process] = ContextVar("process")


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, owner: Process, own: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self._network = network
        self.owner = owner
        self.peer: End | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._context = contextvars.copy_context()
        self._unsent = bytearray()
        self._high = BUFFER_BYTES
        self._is_full = self._is_closing = self._is_due = self.is_lost = False
        self._is_reading = True

    def begin(self, protocol: asyncio.BaseProtocol, context: contextvars.Context) -> None:
        """Connects the protocol of this end, which was made in `context`."""
        self._protocol, self._context = protocol, context
        context.run(protocol.connection_made, self)

    # --- The transport of asyncio ---

    def is_closing(self) -> bool:
        """Returns True after `close` or `abort`."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Returns True unless paused."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Takes no more bytes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Takes bytes again."""
        self._is_reading = True
        if self.peer is not None:
            self.peer.pump()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the limit at which the protocol is to pause."""
        self._high = BUFFER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Returns the number of bytes that the peer has not got."""
        return len(self._unsent)

    def write(self, data: Any) -> None:
        """Sends bytes; a process that is gone sends none."""
        if self._is_closing or self.owner.is_gone:
            return
        self._unsent += data
        self._network.sent_bytes += len(data)
        if len(self._unsent) > self._high and not self._is_full:
            self._is_full = True
            cast("asyncio.Protocol", self._protocol).pause_writing()
        self.pump()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Sends all."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Ends the connection after the bytes that were written."""
        self._is_closing = True
        self.pump()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._is_closing = True
        self._unsent.clear()
        if not self.owner.is_gone:
            self.pump()
        self.lose(None)

    # --- The network ---

    def pump(self) -> None:
        """Lets the next bytes, or the end, go to the peer later."""
        if not self._is_due and (self._unsent or self._is_closing):
            self._is_due = True
            self._network.later(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        peer = self.peer
        if peer is None or self._network.is_blocked(self.owner, peer.owner):
            return
        if peer.is_lost or peer.owner.is_gone:
            # The peer's machine knows the connection no more.
            self._unsent.clear()
            self.lose(ConnectionResetError(104, "Connection reset by peer"))
        elif self._unsent:
            if not peer.is_reading():
                return
            size = self._network.piece_bytes(len(self._unsent))
            piece = bytes(self._unsent[:size])
            del self._unsent[:size]
            peer._context.run(peer._take, piece)
            if self._is_full and len(self._unsent) <= self._high // 4 and not self.is_lost:
                self._is_full = False
                protocol = cast("asyncio.Protocol", self._protocol)
                self._context.run(protocol.resume_writing)
            self.pump()
        elif self._is_closing:
            self.lose(None)
            peer.lose(None)

    def _take(self, piece: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", protocol).data_received(piece)
            return
        while piece and not self.is_lost:
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(piece))
            buffer[:size] = piece[:size]
            protocol.buffer_updated(size)
            piece = piece[size:]

    def lose(self, error: Exception | None) -> None:
        """Ends the connection for this end."""
        self._is_closing = True
        if not self.is_lost:
            self.is_lost = True
            self._network.ends.pop(self, None)
            if self._protocol is not None:
                loop = asyncio.get_running_loop()
                loop.call_soon(self._protocol.connection_lost, error, context=self._context)

    def owner_ended(self, chance: random.Random, *, is_silent: bool) -> None:
        """Ends the connection with its process; a part of the unsent bytes still comes."""
        if is_silent:
            self._unsent.clear()
            return
        del self._unsent[chance.randint(0, len(self._unsent)) :]
        self._is_closing = True
        self.pump()


class Trial:
    """A socket that tries whether a port of the network is free."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def setsockopt(self, *_option: int) -> None:
        """Takes an option."""

    def bind(self, address: tuple[str, int]) -> None:
        """Raises OSError for a port in use."""
        if address in self._network.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class Listener:
    """A port of a process: the server of `create_server`."""

    def __init__(self, network: Network, address: tuple[str, int], make: Callable[[], Any]) -> None:
        self._network = network
        self._address = address
        self.make = make
        self.owner = process.get()
        self.context = contextvars.copy_context()
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        """Returns the address."""
        return self._address

    def close(self) -> None:
        """Accepts no more connections."""
        if self._network.listeners.get(self._address) is self:
            del self._network.listeners[self._address]


@dataclass
class Network:
    """The link between two hosts, and what is wrong with it now."""

    clock: VirtualClock
    chance: random.Random
    delays_ms: tuple[int, ...] = (0,)
    is_in_pieces: bool = False
    is_cut: bool = False
    frozen: set[str] = field(default_factory=set)
    # Hosts without power: they do not even refuse a connection.
    dark: set[str] = field(default_factory=set)
    listeners: dict[tuple[str, int], Listener] = field(default_factory=dict)
    ends: dict[End, None] = field(default_factory=dict)
    sent_bytes: int = 0
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)
    _port: int = FIRST_PORT

    def later(self, work: Callable[[], None]) -> None:
        """Calls `work` after the delay of the link."""
        self.clock.call_later(self.chance.choice(self.delays_ms), work)

    def piece_bytes(self, size: int) -> int:
        """Returns the size of the next piece of `size` bytes."""
        return self.chance.randint(1, min(size, 3_000)) if self.is_in_pieces else size

    def is_blocked(self, one: Process, other: Process) -> bool:
        """Returns True while no byte comes through."""
        return self.is_cut or any(
            host in self.frozen or host in self.dark for host in (one.host, other.host)
        )

    def changed(self) -> None:
        """Lets waiting bytes and connections go on where they may."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for end in [*self.ends]:
            end.pump()
            if end.peer is not None:
                end.peer.pump()

    def ended(self, owner: Process, *, is_silent: bool) -> None:
        """Ends the ports and connections of a process; a silent one resets none."""
        owner.is_gone = True
        for address in [each for each, one in self.listeners.items() if one.owner is owner]:
            del self.listeners[address]
        for end in [each for each in self.ends if each.owner is owner]:
            end.owner_ended(self.chance, is_silent=is_silent)

    def trial(self, *_kind: int) -> Trial:
        """Returns a socket."""
        return Trial(self)

    async def listen(self, make: Callable[[], Any], address: tuple[str, int]) -> Listener:
        """Opens a port. Raises OSError."""
        self.trial().bind(address)
        self.listeners[address] = Listener(self, address, make)
        return self.listeners[address]

    async def connect(self, make: Callable[[], Any], address: tuple[str, int]) -> tuple[End, Any]:
        """Connects the current process. Raises ConnectionRefusedError."""
        own, other = process.get(), Process(address[0])
        await sleep(self.clock, self.chance.choice(self.delays_ms))
        while self.is_blocked(own, other):
            opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(opened)
            await opened
        listener = self.listeners.get(address)
        if listener is None or own.is_gone:
            raise ConnectionRefusedError(111, "Connection refused")
        self._port += 1
        source = (own.host, self._port)
        near = End(self, own, source, address)
        far = End(self, listener.owner, address, source)
        near.peer, far.peer = far, near
        self.ends |= {near: None, far: None}
        context = listener.context.copy()
        far.begin(context.run(listener.make), context)
        near.begin(protocol := make(), contextvars.copy_context())
        return near, protocol


class NetworkedLoop(SimulatedLoop):
    """An event loop whose sockets belong to a simulated network."""

    network: Network

    def time(self) -> float:
        """Returns the simulated time in seconds."""
        return self._virtual.monotonic_ms() / 1000

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Calls back at a simulated time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)

        def due() -> None:
            if not handle.cancelled():
                self.call_soon(handle._run)

        self._virtual.call_later((when - self.time()) * 1000, due)
        return handle

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_given: Any
    ) -> tuple[End, Any]:
        """Connects by the simulated network."""
        return await self.network.connect(protocol_factory, (host, port))

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> Listener:
        """Listens on the simulated network."""
        return await self.network.listen(protocol_factory, (host, port))
