"""The guard around every call, which converts failures into answers.

An unexpected error of a handler is logged and answered with SYSTEM_ERROR. Bytes that are no request
of their method are answered with INVALID_PARAMETER. Beyond `calls_max` running calls, or the limits
of streams, a new call is answered with SYSTEM_BUSY. A stream counts once its user is known. Health
and reflection have no field for a code; their calls end with a corresponding gRPC status.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from rocketpy_broker.errors import AccessDeniedError, BrokerError, StoreClosedError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.calls.failure_log import FailureLog
from rocketpy_broker.server.calls.incomplete_requests import IncompleteRequests
from rocketpy_broker.server.calls.stream_limits import StreamLimits, TooManyCallsError
from rocketpy_broker.services.call_memory import CallMemory, Charge, KeptBytesError, decoded_bytes
from rocketpy_proto.model.codes import ResponseCode

# Running calls of all connections, and the ones that each connection may have beyond that number;
# more are answered with SYSTEM_BUSY. A held call takes 13 KiB.
CALLS_MAX, CALLS_SHARE = 20_000, 16
# Streams of requests of all connections, and of one; more are answered with SYSTEM_BUSY. Each may
# hold an incomplete request.
STREAMS_MAX, STREAMS_OF_CONNECTION = 256, 128
# The same for idle streams, which clients keep open while they run.
IDLE_STREAMS_MAX, IDLE_STREAMS_OF_CONNECTION = 1_000, 128
# The same for reflection, which is open to clients without a user.
OPEN_STREAMS_MAX, OPEN_STREAMS_OF_CONNECTION = 64, 8
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
# Returns the response, of any method of a protocol, that reports an error.
Failure = Callable[[BrokerError], bytes]
# Raises AccessDeniedError for a request that its user may not make.
Check = Callable[[Any], None]
# A listener for a method, the code of its answer, and its duration in ms.
Called = Callable[[str, int, float], None]

STATUS_OF = {
    ResponseCode.SYSTEM_BUSY: grpc.StatusCode.UNAVAILABLE,
    ResponseCode.INVALID_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
}


class CallAccess(Protocol):
    """The access control of a protocol's calls."""

    async def admitted(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> Check | None:
        """Returns the check of each request of a call; None if none is needed.

        Raises AccessDeniedError, and StoreClosedError for a call that writes at a slave.
        """


class UnexpectedError(BrokerError):
    """An error that no handler expects."""

    def __init__(self) -> None:
        super().__init__(
            "the broker failed with an unknown error and logged it; the request may have been done"
        )


class MalformedRequestError(BrokerError):
    """Bytes that cannot be decoded as a request of their method."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, method: str) -> None:
        super().__init__(f"the request of {method} is malformed; check the client's version")


class RunningCall(NamedTuple):
    """A call that counts: its connection, its memory, and what ends with it."""

    peer: str
    charge: Charge
    stack: contextlib.ExitStack


class TimedCalls:
    """A timer of calls that reports durations by method and code."""

    def __init__(self, clock: Clock, on_called: Called) -> None:
        self._clock = clock
        self._on_called = on_called

    def now_ms(self) -> float:
        """Returns the start time of a call."""
        return self._clock.monotonic_ms()

    def answered(self, method: str, begin_ms: float, answer: Any) -> None:
        """Reports the first answer of a call; answers of health and reflection have no code."""
        status = getattr(getattr(answer, "head", answer), "status", None)
        if status is not None and hasattr(status, "code"):
            self.called(method, status.code, begin_ms)

    def called(self, method: str, code: int, begin_ms: float) -> None:
        """Reports a call that has begun at `begin_ms`."""
        self._on_called(method, code, self._clock.monotonic_ms() - begin_ms)


class CallGuard:
    """A counter of the running calls of a server, and a converter of their errors."""

    def __init__(
        self,
        log: FailureLog,
        calls_max: int,
        streams: StreamLimits,
        incomplete_requests: IncompleteRequests,
        timed: TimedCalls | None = None,
    ) -> None:
        self.streams = streams
        self.idle_streams = StreamLimits(IDLE_STREAMS_MAX, IDLE_STREAMS_OF_CONNECTION)
        self.open_streams = StreamLimits(OPEN_STREAMS_MAX, OPEN_STREAMS_OF_CONNECTION)
        self.incomplete_requests = incomplete_requests
        self.timed = timed
        self._log = log
        self._calls_max = calls_max
        self._calls = Shares(CALLS_SHARE)
        self.memory = CallMemory()

    @property
    def running(self) -> int:
        """The number of running calls."""
        return self._calls.total

    @contextlib.contextmanager
    def enter(self, peer: str, method: str) -> Iterator[RunningCall]:
        """Yields one running call. Raises BrokerError, and grpc.aio's own errors."""
        self._calls.change(peer, 1)
        try:
            self.check_count(peer)
            with contextlib.ExitStack() as stack, self.memory.call(peer) as charge:
                yield RunningCall(peer, charge, stack)
        # A call that was ended on purpose, or a client that has gone.
        except grpc.aio.BaseError:
            raise
        except DecodeError as error:
            raise MalformedRequestError(method) from error
        except (KeptBytesError, TooManyCallsError, AccessDeniedError, StoreClosedError):
            raise
        except Exception as error:
            raise self.unexpected(peer, method, error) from error
        finally:
            self._calls.change(peer, -1)

    def begin(self, peer: str, size: int) -> Charge:
        """Counts a call that keeps `size` bytes, until `end`. Raises KeptBytesError."""
        charge = Charge(self.memory, peer)
        charge.set(size)
        self._calls.change(peer, 1)
        return charge

    def check_count(self, peer: str) -> None:
        """Raises TooManyCallsError beyond the limit of running calls; calls of `begin` count.

        Each connection has CALLS_SHARE calls that no other connection can take.
        """
        if self.running > self._calls_max and not self._calls.has_space(peer, 0):
            raise TooManyCallsError(self._calls_max)

    def end(self, charge: Charge) -> None:
        """Ends a call that `begin` has counted."""
        self._calls.change(charge.connection, -1)
        charge.set(0)

    def unexpected(self, peer: str, method: str, error: Exception) -> UnexpectedError:
        """Logs an error that no handler expects; returns the error for the client."""
        self._log.log(peer, method, error)
        return UnexpectedError()


def call_guard(clock: Clock, on_called: Called | None = None) -> CallGuard:
    """Returns the guard of a server. `on_called` is a listener for answered calls."""
    return CallGuard(
        FailureLog(clock),
        CALLS_MAX,
        StreamLimits(STREAMS_MAX, STREAMS_OF_CONNECTION),
        IncompleteRequests(clock),
        None if on_called is None else TimedCalls(clock, on_called),
    )


class GuardedHandlers(grpc.GenericRpcHandler):
    """Guarded handlers of a service; without `failure` an error becomes a gRPC status."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        guard: CallGuard,
        failure: Failure | None = None,
        access: CallAccess | None = None,
        idle_methods: Collection[str] = (),
    ) -> None:
        """Takes in `idle_methods` the methods with idle streams of requests."""
        self._handlers = handlers
        self._guard = guard
        self._failure = failure
        self._access = access
        self._idle_methods = idle_methods
        self._guarded: dict[str, Handler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Returns the handler of a method; None for a method of another service."""
        method = str(details.method)
        guarded = self._guarded.get(method)
        if guarded is None:
            handler = self._handlers.service(details)
            if handler is None:
                return None
            is_idle = method in self._idle_methods
            guarded = GuardedMethod(
                method, handler, self._guard, self._failure, self._access, is_idle=is_idle
            ).handler()
            self._guarded[method] = guarded
        return guarded


class GuardedMethod:
    """A guarded method; decoding and encoding are guarded, too, since they may fail.

    An idle stream gets its headers at once, and has no time limit for its first request.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        guard: CallGuard,
        failure: Failure | None = None,
        access: CallAccess | None = None,
        *,
        is_idle: bool = False,
    ) -> None:
        self._name = name
        self._guard = guard
        self._failure = failure
        self._access = access
        self._incomplete_requests = guard.incomplete_requests
        self._timed = guard.timed
        self._is_idle = is_idle
        self._asks_in_stream = handler.request_streaming
        self._limits = guard.open_streams if failure is None else guard.streams
        if is_idle:
            self._limits = guard.idle_streams
        self._answers_in_stream = handler.response_streaming
        self._decode: Any = handler.request_deserializer
        self._encode: Any = handler.response_serializer
        self._work: Any = handler.stream_stream or handler.unary_stream or handler.unary_unary

    def handler(self) -> Handler:
        """Returns a handler that reads its requests itself."""
        if not self._answers_in_stream:
            return grpc.stream_unary_rpc_method_handler(self._answer)
        if inspect.isasyncgenfunction(self._work):
            return grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.stream_stream_rpc_method_handler(
            self._write, response_serializer=self._encode_unless_bytes
        )

    async def _answer(self, _requests: Any, context: Any) -> bytes:
        try:
            with self._guard.enter(context.peer(), self._name) as call:
                # No variable here holds the request, so a method that waits can free it.
                work = self._work(await self._asked(context, call), context)
                begin_ms = self._begin_ms()
                message = await work
                self._answered(begin_ms, message)
                answer: bytes = self._encode(message)
                return answer
        except BrokerError as error:
            return await self._failed(context, error)

    async def _stream(self, _requests: Any, context: Any) -> None:
        """Writes the answers itself: a generator would be one more layer."""
        try:
            with self._guard.enter(context.peer(), self._name) as call:
                # No variable here holds the request, so a method that waits can free it.
                work = self._work(await self._asked(context, call), context)
                begin_ms = self._begin_ms()
                async with contextlib.aclosing(work) as answers:
                    async for answer in answers:
                        self._answered(begin_ms, answer)
                        begin_ms = 0.0
                        await context.write(self._encode(answer))
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    async def _write(self, _requests: Any, context: Any) -> None:
        """Runs a method that writes its responses itself."""
        try:
            with self._guard.enter(context.peer(), self._name) as call:
                await self._work(await self._asked(context, call), context)
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    def _begin_ms(self) -> float:
        """Returns the start time of the work; 0 without a timer."""
        return 0.0 if self._timed is None else self._timed.now_ms()

    def _answered(self, begin_ms: float, answer: Any) -> None:
        if self._timed is not None and begin_ms:
            self._timed.answered(self._name, begin_ms, answer)

    async def _asked(self, context: Any, call: RunningCall) -> Any:
        """Returns a request, or an iterator of requests.

        Raises KeptBytesError, TooManyCallsError, AccessDeniedError, StoreClosedError.
        """
        data: Any = None
        charge = call.charge
        if self._is_idle:
            # Some clients wait for the headers.
            await context.send_initial_metadata(())
        else:
            data = await self._incomplete_requests.first(context)
        check = await self._admission(context)
        if self._asks_in_stream:
            call.stack.enter_context(self._limits.stream(call.peer))
            return self._read_all(data, context, charge, check)
        if data is grpc.aio.EOF:
            raise DecodeError
        charge.set(decoded_bytes(len(data)))
        return self._checked(data, check)

    async def _admission(self, context: Any) -> Check | None:
        """Returns the check of each request of the call.

        Raises AccessDeniedError, and StoreClosedError for a call that writes at a slave.
        """
        if self._access is None:
            return None
        metadata = context.invocation_metadata() or ()
        return await self._access.admitted(self._name, metadata, context.peer())

    async def _read_all(
        self, data: Any, context: Any, charge: Charge, check: Check | None
    ) -> AsyncIterator[Any]:
        """Yields requests as they come; gRPC's own iterator would be one more generator.

        `data` is the first one; None if it is still to be read.
        """
        if data is None:
            data = await context.read()
        while data is not grpc.aio.EOF:
            yield self._charged(data, charge, check)
            charge.set(0)
            data = await context.read()

    def _charged(self, data: bytes, charge: Charge, check: Check | None) -> Any:
        """Returns a request of a stream, or in its place the error that answers it."""
        try:
            charge.set(decoded_bytes(len(data)))
            return self._checked(data, check)
        except (KeptBytesError, AccessDeniedError) as error:
            if self._failure is None:
                raise
            return error

    def _checked(self, data: bytes, check: Check | None) -> Any:
        """Returns a request, or the error that its decoder returns. Raises AccessDeniedError."""
        request = self._decode(data)
        if check is not None and not isinstance(request, BrokerError):
            check(request)
        return request

    def _encode_unless_bytes(self, answer: Any) -> bytes:
        encoded: bytes = answer if isinstance(answer, bytes) else self._encode(answer)
        return encoded

    async def _failed(self, context: Any, error: BrokerError) -> bytes:
        if self._failure is None:
            await context.abort(STATUS_OF.get(error.code, grpc.StatusCode.INTERNAL), error.remark)
            raise AssertionError
        return self._failure(error)
