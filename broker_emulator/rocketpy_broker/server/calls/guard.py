"""The guard around every call, which converts failures into answers.

An unexpected error of a handler is logged and answered with SYSTEM_ERROR. A request that is no
message of its method is answered with INVALID_PARAMETER. Beyond `calls_max` running calls, or the
limits of streams, a new call is answered with SYSTEM_BUSY. Health and reflection have no field for
a code; their calls end with a corresponding gRPC status.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.calls.failure_log import FailureLog
from rocketpy_broker.server.calls.incomplete_requests import IncompleteRequests
from rocketpy_broker.services.call_memory import CallMemory, Charge, KeptBytesError, decoded_bytes
from rocketpy_proto.model.codes import ResponseCode

# Running calls of all connections; more are answered with SYSTEM_BUSY. A held call takes 13 KiB.
CALLS_MAX = 20_000
# Streams of requests of all connections, and of one; more are answered with SYSTEM_BUSY. Each may
# hold an incomplete request.
STREAMS_MAX, STREAMS_OF_CONNECTION = 256, 128
# The same for idle streams, which clients keep open while they run.
IDLE_STREAMS_MAX, IDLE_STREAMS_OF_CONNECTION = 1_000, 128
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
# Returns the response, of any method of a protocol, that reports an error.
Failure = Callable[[BrokerError], bytes]
# A listener for a method, the code of its answer, and its duration in ms.
Called = Callable[[str, int, float], None]

STATUS_OF = {
    ResponseCode.SYSTEM_BUSY: grpc.StatusCode.UNAVAILABLE,
    ResponseCode.INVALID_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
}


class UnexpectedError(BrokerError):
    """An error that no handler expects."""

    def __init__(self) -> None:
        super().__init__(
            "the broker failed with an unknown error and logged it; the request may have been done"
        )


class MalformedRequestError(BrokerError):
    """A request with bytes that are no message of its method."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, method: str) -> None:
        super().__init__(f"the request is malformed: it is no message of {method}")


class TooManyCallsError(BrokerError):
    """A new call while the maximum of calls is running."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, calls_max: int, kind: str = "calls") -> None:
        super().__init__(f"too many {kind} are running, limit {calls_max}. Call again later")


class StreamLimits:
    """Limits for the streams of requests: each may hold an incomplete request of any size."""

    def __init__(self, total_max: int, connection_max: int) -> None:
        self._total_max = total_max
        self._shares = Shares(connection_max)

    @contextlib.contextmanager
    def stream(self, connection: str) -> Iterator[None]:
        """Counts a stream for the time of the block. Raises TooManyCallsError."""
        if self._shares.total >= self._total_max:
            raise TooManyCallsError(self._total_max, "streams of requests")
        if not self._shares.has_space(connection):
            raise TooManyCallsError(
                self._shares.connection_max, "streams of requests of one connection"
            )
        self._shares.change(connection, 1)
        try:
            yield
        finally:
            self._shares.change(connection, -1)


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
            self._on_called(method, status.code, self._clock.monotonic_ms() - begin_ms)


class CallGuard:
    """A counter of the running calls of a server, and a converter of their errors."""

    def __init__(
        self,
        log: FailureLog,
        calls_max: int,
        streams: StreamLimits,
        unfinished: IncompleteRequests,
        timed: TimedCalls | None = None,
    ) -> None:
        self.streams = streams
        self.idle_streams = StreamLimits(IDLE_STREAMS_MAX, IDLE_STREAMS_OF_CONNECTION)
        self.unfinished = unfinished
        self.timed = timed
        self._log = log
        self._calls_max = calls_max
        self.running = 0
        self.memory = CallMemory()

    @contextlib.contextmanager
    def enter(
        self, peer: Callable[[], str], method: str, limits: StreamLimits | None = None
    ) -> Iterator[Charge]:
        """Yields the memory charge of one call. Raises BrokerError, and grpc.aio's own errors.

        A stream of requests has `limits`.
        """
        if self.running >= self._calls_max:
            raise TooManyCallsError(self._calls_max)
        self.running += 1
        try:
            streams = limits.stream(peer()) if limits is not None else contextlib.nullcontext()
            with streams, self.memory.call(peer()) as charge:
                yield charge
        # A call that was ended on purpose, or a client that has gone.
        except grpc.aio.BaseError:
            raise
        except DecodeError as error:
            raise MalformedRequestError(method) from error
        except (KeptBytesError, TooManyCallsError):
            raise
        except Exception as error:
            raise self.unexpected(peer(), method, error) from error
        finally:
            self.running -= 1

    def begin(self, peer: str, size: int) -> Charge:
        """Counts a call that keeps `size` bytes, until `end`. Raises KeptBytesError."""
        charge = Charge(self.memory, peer)
        charge.set(size)
        self.running += 1
        return charge

    def check_count(self) -> None:
        """Raises TooManyCallsError if more calls run than may, the ones of `begin` included."""
        if self.running > self._calls_max:
            raise TooManyCallsError(self._calls_max)

    def end(self, charge: Charge) -> None:
        """Ends a call that `begin` has counted."""
        self.running -= 1
        charge.set(0)

    def unexpected(self, peer: str, method: str, error: Exception) -> UnexpectedError:
        """Logs an error that no handler expects; returns the error for the client."""
        self._log.tell(peer, method, error)
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
    """Guarded handlers of a service; without `failure` calls end with a gRPC status."""

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        guard: CallGuard,
        failure: Failure | None = None,
        idle_methods: Collection[str] = (),
    ) -> None:
        """Takes in `idle_methods` the methods with idle streams of requests."""
        self._handlers = handlers
        self._guard = guard
        self._failure = failure
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
                method, handler, self._guard, self._failure, is_idle=is_idle
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
        *,
        is_idle: bool = False,
    ) -> None:
        self._name = name
        self._guard = guard
        self._failure = failure
        self._unfinished = guard.unfinished
        self._timed = guard.timed
        self._is_idle = is_idle
        self._asks_in_stream = handler.request_streaming
        self._limits = guard.idle_streams if is_idle else guard.streams
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
            with self._enter(context) as charge:
                # No name here holds the request, so a held method can free it.
                work = self._work(await self._asked(context, charge), context)
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
            with self._enter(context) as charge:
                # No name here holds the request, so a held method can free it.
                work = self._work(await self._asked(context, charge), context)
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
            with self._enter(context) as charge:
                await self._work(await self._asked(context, charge), context)
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    def _enter(self, context: Any) -> contextlib.AbstractContextManager[Charge]:
        limits = self._limits if self._asks_in_stream else None
        return self._guard.enter(context.peer, self._name, limits)

    def _begin_ms(self) -> float:
        """Returns the start time of the work; 0 without a timer."""
        return 0.0 if self._timed is None else self._timed.now_ms()

    def _answered(self, begin_ms: float, answer: Any) -> None:
        if self._timed is not None and begin_ms:
            self._timed.answered(self._name, begin_ms, answer)

    async def _asked(self, context: Any, charge: Charge) -> Any:
        """Returns a request, or an iterator of requests. Raises KeptBytesError."""
        if self._is_idle:
            # Some clients wait for the headers.
            await context.send_initial_metadata(())
            return self._read_idle(context, charge)
        data = await self._unfinished.first(context)
        if self._asks_in_stream:
            return self._read_all(data, context, charge)
        if data is grpc.aio.EOF:
            raise DecodeError
        charge.set(decoded_bytes(len(data)))
        return self._decode(data)

    async def _read_idle(self, context: Any, charge: Charge) -> AsyncIterator[Any]:
        async for request in self._read_all(await context.read(), context, charge):
            yield request

    async def _read_all(self, data: Any, context: Any, charge: Charge) -> AsyncIterator[Any]:
        """Yields requests as they come; gRPC's own iterator would be one more generator."""
        while data is not grpc.aio.EOF:
            yield self._charged(data, charge)
            charge.set(0)
            data = await context.read()

    def _charged(self, data: bytes, charge: Charge) -> Any:
        """Returns a request of a stream, or in its place the error that answers it."""
        try:
            charge.set(decoded_bytes(len(data)))
        except KeptBytesError as error:
            if self._failure is None:
                raise
            return error
        return self._decode(data)

    def _encode_unless_bytes(self, answer: Any) -> bytes:
        encoded: bytes = answer if isinstance(answer, bytes) else self._encode(answer)
        return encoded

    async def _failed(self, context: Any, error: BrokerError) -> bytes:
        if self._failure is None:
            await context.abort(STATUS_OF.get(error.code, grpc.StatusCode.INTERNAL), error.remark)
            raise AssertionError
        return self._failure(error)
