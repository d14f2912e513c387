"""The guard around every call, which converts failures into answers.

An unexpected error of a handler is logged and answered with SYSTEM_ERROR. A request that is no
message of its method is answered with INVALID_PARAMETER. Beyond `calls_max` running calls a new
call is answered with SYSTEM_BUSY. Health and reflection have no field for a code; their calls end
with a corresponding gRPC status.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.response_code import ResponseCode
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.server.calls.failure_log import FailureLog
from rocketpy_broker.server.calls.incomplete_requests import IncompleteRequests
from rocketpy_broker.services.call_memory import CallMemory, Charge, KeptBytesError, decoded_bytes

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
            "the broker failed in a way that it does not know, and has logged it; "
            "what was asked for may have been done"
        )


class MalformedRequestError(BrokerError):
    """A request whose bytes are no message of its method."""

    code = ResponseCode.INVALID_PARAMETER

    def __init__(self, method: str) -> None:
        super().__init__(f"the request is malformed: it is no message of {method}")


class TooManyCallsError(BrokerError):
    """A new call while the maximum of calls is running."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, calls_max: int) -> None:
        super().__init__(f"{calls_max} calls are running already; call again later")


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
        unfinished: IncompleteRequests,
        timed: TimedCalls | None = None,
    ) -> None:
        self.unfinished = unfinished
        self.timed = timed
        self._log = log
        self._calls_max = calls_max
        self.running = 0
        self.memory = CallMemory()

    @contextlib.contextmanager
    def enter(self, peer: Callable[[], str], method: str) -> Iterator[Charge]:
        """Yields the memory charge of one call. Raises BrokerError, and grpc.aio's own errors."""
        if self.running >= self._calls_max:
            raise TooManyCallsError(self._calls_max)
        self.running += 1
        try:
            with self.memory.call(peer()) as charge:
                yield charge
        # A call that was ended on purpose, or a client that has gone.
        except grpc.aio.BaseError:
            raise
        except DecodeError as error:
            raise MalformedRequestError(method) from error
        except KeptBytesError:
            raise
        except Exception as error:
            self._log.tell(peer(), method, error)
            raise UnexpectedError from error
        finally:
            self.running -= 1


class GuardedHandlers(grpc.GenericRpcHandler):
    """Guarded handlers of a service; without `failure` calls end with a gRPC status."""

    def __init__(
        self, handlers: grpc.GenericRpcHandler, guard: CallGuard, failure: Failure | None = None
    ) -> None:
        self._handlers = handlers
        self._guard = guard
        self._failure = failure
        self._guarded: dict[str, Handler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Returns the handler of a method; None for a method of another service."""
        method = str(details.method)
        guarded = self._guarded.get(method)
        if guarded is None:
            handler = self._handlers.service(details)
            if handler is None:
                return None
            guarded = GuardedMethod(method, handler, self._guard, self._failure).handler()
            self._guarded[method] = guarded
        return guarded


class GuardedMethod:
    """A guarded method; decoding and encoding are guarded, too, since they may fail."""

    def __init__(
        self, name: str, handler: Handler, guard: CallGuard, failure: Failure | None = None
    ) -> None:
        self._name = name
        self._guard = guard
        self._failure = failure
        self._unfinished = guard.unfinished
        self._timed = guard.timed
        self._asks_in_stream = handler.request_streaming
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
            with self._guard.enter(context.peer, self._name) as charge:
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
            with self._guard.enter(context.peer, self._name) as charge:
                asked = await self._asked(context, charge)
                begin_ms = self._begin_ms()
                async with contextlib.aclosing(self._work(asked, context)) as answers:
                    async for answer in answers:
                        self._answered(begin_ms, answer)
                        begin_ms = 0.0
                        await context.write(self._encode(answer))
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    async def _write(self, _requests: Any, context: Any) -> None:
        """Runs a method that writes its responses itself."""
        try:
            with self._guard.enter(context.peer, self._name) as charge:
                await self._work(await self._asked(context, charge), context)
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    def _begin_ms(self) -> float:
        """Returns the start time of the work; 0 without a timer."""
        return 0.0 if self._timed is None else self._timed.now_ms()

    def _answered(self, begin_ms: float, answer: Any) -> None:
        if self._timed is not None and begin_ms:
            self._timed.answered(self._name, begin_ms, answer)

    async def _asked(self, context: Any, charge: Charge) -> Any:
        """Returns a request, or an iterator of requests. Raises KeptBytesError."""
        data = await self._unfinished.first(context)
        if self._asks_in_stream:
            return self._read_all(data, context, charge)
        if data is grpc.aio.EOF:
            raise DecodeError
        charge.set(decoded_bytes(len(data)))
        return self._decode(data)

    async def _read_all(self, data: Any, context: Any, charge: Charge) -> AsyncIterator[Any]:
        """Yields requests as they come; gRPC's own iterator would be one more generator."""
        while data is not grpc.aio.EOF:
            yield self._charged(data, charge)
            charge.set(0)
            data = await self._unfinished.next(context)

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
