"""A connection of remoting: frames in, commands out.

Reading pauses while the peer does not read its answers, or too many of its requests wait. It also
pauses while a large frame waits for a place. So a peer delays itself alone.
Source: docs/design/remoting.md sections 1.4 and 6.1.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock, fail
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record import UNKNOWN_HOST, Host
from rocketpy_proto.remoting import (
    FRAME_BYTES_MAX,
    ONE_WAY_FLAG,
    FrameDecoder,
    RemotingCommand,
    RemotingFormatError,
    encode_frame,
)

if TYPE_CHECKING:
    from rocketpy_broker.server.security.tls import TlsPort

# Longer headers would hold the event loop while they are parsed; RocketMQ's properties have at most
# 32 KiB.
HEADER_BYTES_MAX = 131_072
# A larger frame needs a place before the rest of it is read: see `ConnectionOwner.large_frame`.
SMALL_FRAME_BYTES = 131_072
# Requests of one connection that wait to be handled: their number and their bytes.
WAITING_MAX, WAITING_BYTES_MAX = 1_024, 131_072
# Requests that are handled before other connections have their turn.
REQUESTS_PER_TURN = 64
# Answers of one turn are sent together, up to about this number of bytes.
SENT_BYTES_MIN = 65_536
READ_BYTES = 65_536
OPAQUE_MAX = (1 << 31) - 1
# The start of a TLS handshake, which would be too large as the size of a frame.
TLS_BEGIN = b"\x16\x03"
_NO_TLS = RemotingFormatError(
    "frame",
    "it is TLS, which this port does not serve: connect in plaintext, or start the server with "
    "--tls-certificate or --tls-self-signed",
)
# Bytes of unread answers from which on no more requests are read.
UNREAD_BYTES_MAX = 1 << 20


class ConnectionEndedError(BrokerError):
    """A connection that ended before the answer to a request came."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"the connection of {peer} has ended before the answer came")


class UnreadRequestsError(BrokerError):
    """A peer that does not read; it gets no more requests."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, peer: str) -> None:
        super().__init__(
            f"the client at {peer} has not read {UNREAD_BYTES_MAX} bytes; ask again later"
        )


class NoAnswerError(BrokerError):
    """A request to a peer that was not answered in time."""

    code = ResponseCode.CONSUME_MSG_TIMEOUT

    def __init__(self, peer: str, wait_ms_max: float) -> None:
        super().__init__(
            f"the client at {peer} has not answered, limit {wait_ms_max} ms; ask again later"
        )


class ConnectionOwner(Protocol):
    """The server or client, as its connections see it."""

    def opened(self, connection: RemotingConnection) -> bool:
        """Takes in a new connection; False closes it."""

    def received(self, connection: RemotingConnection, command: RemotingCommand, size: int) -> None:
        """Handles a request, or an answer to one of this end's; its frame had `size` bytes."""

    def malformed(self, connection: RemotingConnection, error: RemotingFormatError) -> None:
        """Reports bytes that are no frame; the connection is closed."""

    def large_frame(self, connection: RemotingConnection) -> bool:
        """Returns True if there is a place for a large frame; else calls `admit` later."""

    def small_frame(self, connection: RemotingConnection) -> None:
        """Frees the place of a large frame: its request has ended."""

    def has_time(self) -> bool:
        """Returns False if further requests are to wait for the next pass of the loop."""

    def closed(self, connection: RemotingConnection) -> None:
        """Forgets a connection."""


class RemotingConnection(asyncio.BufferedProtocol):
    """One peer. `peer` is its address, in gRPC's notation."""

    def __init__(
        self,
        owner: ConnectionOwner,
        buffer: bytearray,
        running_max: int,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        tls: TlsPort | None = None,
    ) -> None:
        """Takes in a buffer that all connections of one loop share.

        At most `running_max` requests run at a time. `tls` is that of an accepting port.
        """
        self._tls = tls
        self._owner = owner
        self._buffer = memoryview(buffer)
        self._decoder = FrameDecoder(frame_bytes_max, HEADER_BYTES_MAX)
        # Requests, each with the bytes of its frame.
        self._waiting: deque[tuple[RemotingCommand, int]] = deque()
        self._waiting_bytes = 0
        self._running, self._running_max = 0, running_max
        self._is_turn_due = False
        self._is_handling = False
        self._is_reading = True
        self._is_stopping = False
        # Set while the peer reads its answers.
        self._drained = asyncio.Event()
        self._drained.set()
        self._is_large = False
        self._is_queued = False
        self._transport: asyncio.Transport | None = None
        # Frames of this pass of the loop.
        self._unsent: list[bytes | memoryview] = []
        self._unsent_bytes = 0
        # Requests to the peer without an answer, by their opaque.
        self._asked: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        # The work of running requests: the tasks that the connection's end cancels, and all else.
        self._cancelled_at_end: set[asyncio.Future[Any]] = set()
        self._finished_at_end: set[asyncio.Future[Any]] = set()
        self.peer = ""
        # The addresses of the peer and of this end.
        self.peer_host = self.local_host = UNKNOWN_HOST
        # By the owner's clock: the last byte in either direction.
        self.active_ms = 0.0

    # --- Events ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts reading, unless the owner has too many connections."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        self.peer_host = _host_of(transport.get_extra_info("peername"))
        self.local_host = _host_of(transport.get_extra_info("sockname"))
        self.peer = f"ipv{self.peer_host.address.version}:{self.peer_host}"
        if not self._owner.opened(self):
            self.abort()
        elif self._tls is not None:
            self._tls.watch(self, self._transport)

    def decided(self, transport: asyncio.Transport) -> RemotingConnection:
        """Takes the transport of a port with TLS, when the first byte has come."""
        self._transport = transport
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        return self

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns the place for received bytes; `buffer_updated` takes them out at once."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Cuts received bytes into commands."""
        try:
            for command in self._decoder.feed(bytes(self._buffer[:nbytes])):
                if command.is_response:
                    # It does not wait for requests before it, which may be held pulls.
                    self._owner.received(self, command, self._decoder.frame_bytes)
                    continue
                self._waiting.append((command, self._decoder.frame_bytes))
                self._waiting_bytes += self._decoder.frame_bytes
        except RemotingFormatError as error:
            is_tls = self._tls is None and self._buffer[:2] == TLS_BEGIN
            self._owner.malformed(self, _NO_TLS if is_tls else error)
            self.abort()
            return
        if self._decoder.begun_bytes > SMALL_FRAME_BYTES and not self._is_large:
            self._is_large = True
            self._is_queued = not self._owner.large_frame(self)
        self._handle()

    def eof_received(self) -> bool:
        """Closes the connection: a peer that sends no more is gone."""
        return False

    def pause_writing(self) -> None:
        """Stops reading until the peer has read its answers."""
        self._drained.clear()
        self._set_reading()

    def resume_writing(self) -> None:
        """Reads again."""
        self._drained.set()
        self._handle()

    def connection_lost(self, _error: Exception | None) -> None:
        """Ends the requests that need an answer; waiting one-way requests are still handled."""
        self._transport = None
        self._drained.set()
        self._waiting = deque(each for each in self._waiting if each[0].is_one_way)
        self._cancel_some()
        asyncio.get_running_loop().call_soon(self._handle)
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            fail(answer, ConnectionEndedError(self.peer))
        self._owner.closed(self)

    def _cancel_some(self) -> None:
        """Cancels the work that ends with the connection, REQUESTS_PER_TURN in one pass."""
        for _ in range(min(REQUESTS_PER_TURN, len(self._cancelled_at_end))):
            self._cancelled_at_end.pop().cancel()
        if self._cancelled_at_end:
            asyncio.get_running_loop().call_soon(self._cancel_some)

    # --- Commands ---

    def send(self, command: RemotingCommand) -> None:
        """Sends a command in this pass of the loop, if the connection is open.

        Raises UnencodableRemotingError.
        """
        if self._transport is None:
            return
        if not self._unsent and not self._is_handling:
            asyncio.get_running_loop().call_soon(self._flush)
        frame = encode_frame(command)
        self._unsent += frame
        self._unsent_bytes += sum(map(len, frame))

    def _flush(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and self._transport is not None:
            self._transport.writelines(unsent)

    def notify(self, command: RemotingCommand) -> None:
        """Sends a one-way request; its `opaque` and `flag` are replaced."""
        opaque = self._next_opaque()
        self.send(msgspec.structs.replace(command, opaque=opaque, flag=ONE_WAY_FLAG))

    async def drained(self) -> None:
        """Waits until the peer has read its answers, or the connection has ended."""
        await self._drained.wait()

    async def ask(
        self, command: RemotingCommand, clock: Clock, wait_ms_max: float
    ) -> RemotingCommand:
        """Sends a request to the peer and returns the answer, with any code.

        Its `opaque` is replaced. Raises ConnectionEndedError, UnreadRequestsError, NoAnswerError.
        """
        if self._transport is None:
            raise ConnectionEndedError(self.peer)
        if not self.has_space:
            raise UnreadRequestsError(self.peer)
        opaque = self._next_opaque()
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._asked[opaque] = answer
        late = NoAnswerError(self.peer, wait_ms_max)
        timer = clock.call_later(wait_ms_max, lambda: fail(answer, late))
        try:
            self.send(msgspec.structs.replace(command, opaque=opaque))
            return await answer
        finally:
            timer.cancel()
            self._asked.pop(opaque, None)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & OPAQUE_MAX
        return self._opaque

    def answered(self, command: RemotingCommand) -> None:
        """Takes an answer of the peer; one without a request is ignored."""
        answer = self._asked.get(command.opaque)
        if answer is not None and not answer.done():
            answer.set_result(command)

    def started(self) -> None:
        """Counts a request that runs on."""
        self._running += 1

    def ended(self) -> None:
        """Ends a request that was `started`."""
        self._running -= 1
        self._take_turn()
        self._set_reading()

    def wait_for(self, work: asyncio.Future[Any], *, is_cancelled_at_end: bool) -> None:
        """Lists the work of a running request until it is done; the connection's end may cancel it.

        Several requests may wait for one future.
        """
        works = self._cancelled_at_end if is_cancelled_at_end else self._finished_at_end
        works.add(work)
        work.add_done_callback(works.discard)
        if is_cancelled_at_end and self._transport is None:
            work.cancel()

    @property
    def running(self) -> Collection[asyncio.Future[Any]]:
        """The work of running requests."""
        return self._cancelled_at_end | self._finished_at_end

    def stop_reading(self) -> None:
        """Reads no more requests."""
        self._is_stopping = True
        self._set_reading()

    def close(self) -> None:
        """Closes the connection when the peer has read its answers."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def has_space(self) -> bool:
        """True while the peer may get requests: it has read enough of earlier frames."""
        return self.unread_bytes <= UNREAD_BYTES_MAX

    @property
    def is_drained(self) -> bool:
        """True while the peer reads its answers."""
        return self._drained.is_set()

    @property
    def is_open(self) -> bool:
        """True until the connection has ended."""
        return self._transport is not None

    @property
    def unread_bytes(self) -> int:
        """The bytes in this process that wait for the peer to read."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + self._unsent_bytes

    @property
    def is_idle(self) -> bool:
        """True if no request runs or waits, and no answer is unread."""
        return not self._running and not self._waiting and not self.unread_bytes

    def admit(self) -> None:
        """Reads the rest of a large frame: there is a place for it."""
        self._is_queued = False
        self._set_reading()

    def _take_turn(self) -> None:
        """Handles waiting requests in the next pass of the loop: once, however often asked."""
        if self._waiting and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._handle_in_turn)

    def _handle_in_turn(self) -> None:
        self._is_turn_due = False
        self._handle()

    def _handle(self) -> None:
        """Hands over the next REQUESTS_PER_TURN requests; the rest waits for the next pass.

        Sends their immediate answers meanwhile, so a peer that does not read them ends the turn.
        """
        self._is_handling = True
        left = 0 if self._is_turn_due else REQUESTS_PER_TURN
        while left and self._waiting and self.is_drained and self._running < self._running_max:
            command, size = self._waiting.popleft()
            self._waiting_bytes -= size
            self._owner.received(self, command, size)
            if self._unsent_bytes > SENT_BYTES_MIN:
                self._flush()
            left = left - 1 if self._owner.has_time() else 0
        if not left:
            self._take_turn()
        self._is_handling = False
        self._flush()
        self._set_reading()

    def _set_reading(self) -> None:
        held = self._decoder.begun_bytes + self._waiting_bytes
        if self._is_large and held <= SMALL_FRAME_BYTES and not self._running:
            self._is_large = False
            self._owner.small_frame(self)
        is_full = len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX
        is_held = self._is_queued or self._is_stopping or is_full
        may_read = self.is_drained and not is_held
        if self._transport is None or may_read == self._is_reading:
            return
        self._is_reading = may_read
        if may_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def unsupported(command: RemotingCommand) -> RemotingCommand:
    """Returns the answer to a request of a code that is not served."""
    return command.answer(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f"request type {command.code} not supported",
    )


def _host_of(address: Any) -> Host:
    """Returns a socket's address; an IPv4 address in IPv6's form becomes IPv4."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return Host(mapped or host, address[1])
