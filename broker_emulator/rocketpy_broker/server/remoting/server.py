"""The remoting server: connections, and the processors of their requests.

A processor answers a request at once, or returns a coroutine or a `Deferred` for an answer that
comes later. A `Prompt` coroutine begins at once; other ones begin in the next pass of the loop.
Answers of one connection come in any order. Unexpected errors are logged and answered with
SYSTEM_ERROR; unknown codes are answered with REQUEST_CODE_NOT_SUPPORTED. A connection is closed
after two minutes without a byte, a running request or an unread answer. Malformed bytes close it,
too, as in RocketMQ.
Source: NettyRemotingServer, docs/design/remoting.md section 1.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.tasks import Prompt, TaskScope
from rocketpy_broker.server.bind_address import ListenAddress, listen
from rocketpy_broker.server.calls.failure_log import PeerLines
from rocketpy_broker.server.calls.guard import CallGuard
from rocketpy_broker.server.remoting.buffer_limiter import UNREAD_BYTES_MAX, RemotingBufferLimiter
from rocketpy_broker.server.remoting.connection import READ_BYTES, RemotingConnection, unsupported
from rocketpy_broker.server.remoting.connection_limit import ConnectionLimit
from rocketpy_broker.server.security.remoting_access import RemotingAccess
from rocketpy_broker.server.security.tls import TlsPort
from rocketpy_broker.services.call_memory import Charge
from rocketpy_proto.model.codes import RequestCode, ResponseCode
from rocketpy_proto.remoting import (
    EXCHANGES,
    REQUEST_BODIES,
    RemotingCommand,
    RemotingFormatError,
    Serialization,
    UnencodableRemotingError,
)
from rocketpy_proto.remoting.fields import decode_bounded_body

logger = logging.getLogger(__name__)
# The time without a byte in either direction after which an idle connection is closed.
IDLE_MS_MAX = 120_000
# Large frames that are received at a time, up to 26 MiB of memory each. The time for one is limited
# while another connection waits for a place.
LARGE_FRAMES_MAX = 8
CROWDED_MS_MAX = 20_000
INTERVAL_MS = 5_000
# Bytes of a body that takes a few ms to decode. The most bytes of a body that is not plain JSON,
# which takes 20 ms; and of such a list of topics, which takes half a second in a thread.
SMALL_BODY_BYTES, LENIENT_BODY_BYTES, LENIENT_LIST_BYTES = 16_384, 65_536, 1 << 20
# The time in which all connections hand over requests in one pass of the loop.
PASS_MS = 5
_REQUESTS = {int(code): exchange.request for code, exchange in EXCHANGES.items()}


class Request(NamedTuple):
    """A request: its command, its header as a value, and its connection."""

    command: RemotingCommand
    header: Any
    connection: RemotingConnection

    def held_ms(self, wait_ms: int) -> int:
        """Returns the time for which to hold the request: none if it needs no answer."""
        return 0 if self.command.is_one_way else wait_ms

    async def bounded_body(self, bytes_max: int) -> Any:
        """Returns the body as a value; decodes a large one in a scheduler slot.

        Raises ParameterIllegalError, RemotingFormatError.
        """
        if len(self.bounded_bytes(bytes_max)) > SMALL_BODY_BYTES:
            await take_slot("body")
        return self.body(LENIENT_BODY_BYTES)

    def bounded_bytes(self, bytes_max: int) -> bytes | memoryview:
        """Returns the body's bytes. Raises ParameterIllegalError for more than `bytes_max`."""
        size = len(self.command.body)
        if size > bytes_max:
            raise ParameterIllegalError("bytes of the body", size, f"{bytes_max} or fewer")
        return self.command.body

    def body(self, lenient_bytes_max: int = LENIENT_LIST_BYTES) -> Any:
        """Returns the body as a value. Raises RemotingFormatError."""
        kind = REQUEST_BODIES[RequestCode(self.command.code)]
        return decode_bounded_body(kind, self.command.body, lenient_bytes_max)

    def answer(
        self,
        header: Any = None,
        *,
        body: bytes = b"",
        code: ResponseCode = ResponseCode.SUCCESS,
        remark: str | None = None,
    ) -> RemotingCommand:
        """Returns the answer with a header as a value."""
        form = EXCHANGES[RequestCode(self.command.code)].response
        fields = {} if header is None else form.encode(header)
        return self.command.answer(code, remark=remark, ext_fields=fields, body=body)


class Deferred(NamedTuple):
    """The next step of a request: `answer` is called with the future when that is done.

    It costs less than a task. Only a future of this call alone may be cancelled at the
    connection's end.
    """

    future: asyncio.Future[Any]
    answer: Callable[[asyncio.Future[Any]], Step]
    is_cancelled_at_end: bool = False


Answer = RemotingCommand | None
Step: TypeAlias = "Answer | Coroutine[Any, Any, Answer] | Deferred"
Processor = Callable[[Request], Step]


class RunningRequest(NamedTuple):
    """A request that runs on: its connection, its command, the memory that it keeps, its start."""

    connection: RemotingConnection
    command: RemotingCommand
    charge: Charge
    begin_ms: float


class Processors(Protocol):
    """The processors of one subject."""

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors by request code."""


class RemotingServer:
    """A server of one port; `processors` are by request code."""

    def __init__(
        self,
        address: ListenAddress,
        processors: Mapping[int, Processor],
        clock: Clock,
        guard: CallGuard,
        running_max: int,
        access: RemotingAccess | None = None,
        tls: TlsPort | None = None,
    ) -> None:
        """Takes in `running_max`, the limit of a connection's requests that run at a time."""
        self._access = access
        self._tls = tls
        self._guard = guard
        self._address = address
        self._processors = processors
        self._running_max = running_max
        self._clock = clock
        self._malformed = PeerLines(clock)
        self._buffer = bytearray(READ_BYTES)
        self._connections: set[RemotingConnection] = set()
        self._limit = ConnectionLimit()
        # Connections with a place for a large frame and its start, and the ones that wait for one.
        self._large: dict[RemotingConnection, float] = {}
        self._queued: dict[RemotingConnection, None] = {}
        self._buffer_limiter = RemotingBufferLimiter(self._connections, clock)
        # The end of this pass' time for requests; None before its first one.
        self._pass_end_ms: float | None = None
        self._empty = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks = TaskScope()
        self._is_serving = False
        # Called with each connection that has ended.
        self.connection_lost: Listeners[RemotingConnection] = Listeners()

    async def start(self, scope: TaskScope) -> int:
        """Binds the address, starts serving and returns the port. Raises PortInUseError."""
        self._tasks, self._is_serving = scope, True
        self._server, port = await listen(
            self._address,
            lambda: RemotingConnection(self, self._buffer, self._running_max, tls=self._tls),
        )
        scope.start(self._close_old())
        return port

    async def stop(self, grace_ms: float = 0) -> None:
        """Refuses new requests; running ones have `grace_ms` to end with their answers."""
        self._is_serving = False
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.stop_reading()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drained(), grace_ms / 1000)
        for connection in [*self._connections]:
            connection.abort()
        # The connections' ends come in the next passes of the loop.
        if self._connections:
            await self._empty.wait()

    async def _drained(self) -> None:
        """Returns when all requests have ended and all answers are sent."""
        while running := [work for each in self._connections for work in each.running]:
            await asyncio.wait(running)
        for connection in [*self._connections]:
            connection.close()
        if self._connections:
            await self._empty.wait()

    def __len__(self) -> int:
        return len(self._connections)

    # --- Events of connections ---

    def opened(self, connection: RemotingConnection) -> bool:
        """Takes in a new connection; False beyond a limit or while the server stops."""
        if not self._is_serving or not self._limit.enter(connection.peer):
            return False
        connection.active_ms = self._clock.monotonic_ms()
        self._empty.clear()
        self._connections.add(connection)
        return True

    def closed(self, connection: RemotingConnection) -> None:
        """Forgets a connection."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._limit.leave(connection.peer)
        self._queued.pop(connection, None)
        self.small_frame(connection)
        self.connection_lost(connection)
        if not self._connections:
            self._empty.set()

    def large_frame(self, connection: RemotingConnection) -> bool:
        """Returns True if there is a place for a large frame; else the connection waits."""
        if len(self._large) >= LARGE_FRAMES_MAX:
            self._queued[connection] = None
            return False
        self._large[connection] = self._clock.monotonic_ms()
        return True

    def small_frame(self, connection: RemotingConnection) -> None:
        """Gives the connection's place to the connection that waits longest."""
        if self._large.pop(connection, None) is None or not self._queued:
            return
        following = next(iter(self._queued))
        del self._queued[following]
        self._large[following] = self._clock.monotonic_ms()
        following.admit()

    def has_time(self) -> bool:
        """Returns False if further requests are to wait for the next pass of the loop."""
        now_ms = self._clock.monotonic_ms()
        if self._pass_end_ms is None:
            self._pass_end_ms = now_ms + PASS_MS
            asyncio.get_running_loop().call_soon(self._end_pass)
        return now_ms < self._pass_end_ms

    def _end_pass(self) -> None:
        self._pass_end_ms = None

    def malformed(self, connection: RemotingConnection, error: RemotingFormatError) -> None:
        """Logs bytes that are no frame, a line for each peer and minute."""
        withheld = self._malformed.due(connection.peer)
        if withheld is not None:
            logger.warning(
                "connection of %s is closed: %.200s; %d more since the last such line",
                *(connection.peer, error, withheld),
            )

    def received(self, connection: RemotingConnection, command: RemotingCommand, size: int) -> None:
        """Handles one request, or an answer to one of the server's; its frame had `size` bytes."""
        begin_ms = connection.active_ms = self._clock.monotonic_ms()
        if command.is_response:
            connection.answered(command)
            return
        processor = self._processors.get(command.code)
        if processor is None:
            self._send(connection, command, unsupported(command))
            return
        # The connection's events share a context, which tasks copy.
        scheduler.connection.set(connection.peer)
        try:
            call = RunningRequest(
                connection, command, self._guard.begin(connection.peer, size), begin_ms
            )
        except BrokerError as error:
            self._send(connection, command, self._failed(connection, command, error))
            return
        step = self._worked(call, lambda: self._begun(_request(connection, command), processor))
        if isinstance(step, Deferred):
            connection.started()
            self._follow(call, step)
        else:
            self._end(call, step)

    def _begun(self, request: Request, processor: Processor) -> Step:
        """Returns the first step of a request that its user may make. Raises BrokerError."""
        if self._access is None or not self._access.is_on:
            return processor(request)
        step: Step = self._access.step(request, request.connection.peer, processor)
        return step

    def _worked(self, call: RunningRequest, work: Callable[[], Step]) -> Answer | Deferred:
        """Returns the next step, or the answer that reports an error; starts a coroutine."""
        connection, command, charge, _ = call
        try:
            step = work()
        except asyncio.CancelledError:
            return None
        except Exception as error:
            answer = self._failed(connection, command, error)
            # The task keeps the error, whose traceback refers to the task: a cycle.
            error.__traceback__ = None
            return answer
        if not isinstance(step, Coroutine):
            return step
        try:
            self._guard.check_count(connection.peer)
        except BrokerError as error:
            step.close()
            return self._failed(connection, command, error)
        if isinstance(step, Prompt) and not step.has_begun:
            return self._worked(call, step.begin)
        with charge.running():
            task = self._tasks.begin(step)
        return Deferred(task, asyncio.Future.result, not command.is_one_way)

    def _follow(self, call: RunningRequest, step: Deferred) -> None:
        """Takes the next step of a call when this one is done."""
        future, answer, is_cancelled_at_end = step
        call.connection.wait_for(future, is_cancelled_at_end=is_cancelled_at_end)

        def done(_: object) -> None:
            following = self._worked(call, lambda: answer(future))
            if isinstance(following, Deferred):
                self._follow(call, following)
            else:
                try:
                    self._end(call, following)
                finally:
                    call.connection.ended()

        future.add_done_callback(done)

    def _end(self, call: RunningRequest, answer: Answer) -> None:
        self._guard.end(call.charge)
        if answer is not None:
            if timed := self._guard.timed:
                timed.called(_name_of(call.command), answer.code, call.begin_ms)
            self._send(call.connection, call.command, answer)

    def _send(
        self, connection: RemotingConnection, command: RemotingCommand, answer: RemotingCommand
    ) -> None:
        if command.is_one_way:
            return
        size = len(answer.body)
        if size and not self._buffer_limiter.try_reserve(connection, size):
            remark = f"clients have not read {UNREAD_BYTES_MAX} bytes of answers; ask again later"
            answer = command.answer(ResponseCode.SYSTEM_BUSY, remark=remark)
        connection.active_ms = self._clock.monotonic_ms()
        # RocketMQ's servers answer requests of either form in JSON.
        answer = msgspec.structs.replace(answer, serialization=Serialization.JSON)
        try:
            connection.send(answer)
        except UnencodableRemotingError as error:
            remark = f"the answer cannot be sent: {error}"
            connection.send(command.answer(ResponseCode.SYSTEM_ERROR, remark=remark))

    def _failed(
        self, connection: RemotingConnection, command: RemotingCommand, error: Exception
    ) -> RemotingCommand:
        """Returns the answer that reports an error."""
        if isinstance(error, BrokerError):
            return command.answer(error.code, remark=error.remark)
        if isinstance(error, RemotingFormatError):
            return command.answer(ResponseCode.SYSTEM_ERROR, remark=f"{error!s:.1000}")
        unexpected = self._guard.unexpected(connection.peer, _name_of(command), error)
        return command.answer(unexpected.code, remark=unexpected.remark)

    async def _close_old(self) -> None:
        while True:
            await sleep(self._clock, INTERVAL_MS)
            now_ms = self._clock.monotonic_ms()
            for each in [*self._connections]:
                if now_ms - each.active_ms >= IDLE_MS_MAX and each.is_idle:
                    each.abort()
            for each, since_ms in [*self._large.items()] if self._queued else ():
                if now_ms - since_ms >= CROWDED_MS_MAX:
                    each.abort()


def _request(connection: RemotingConnection, command: RemotingCommand) -> Request:
    return Request(command, _REQUESTS[command.code].decode(command.ext_fields), connection)


def _name_of(command: RemotingCommand) -> str:
    return RequestCode(command.code).name
