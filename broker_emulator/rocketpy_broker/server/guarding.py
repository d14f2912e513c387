"""What every call passes, whatever its protocol: no failure reaches a client undeclared.

What a handler raises is logged, and answered with SYSTEM_ERROR; a request that is no message of its
method with INVALID_PARAMETER. Beyond a number of running calls new ones are answered with
SYSTEM_BUSY. Methods of other protocols than ours, health and reflection, have no place for a code,
and end with a gRPC status that says the same. Lives in memory.
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
from rocketpy_broker.server.failure_log import FailureLog

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
# A response of any method of a protocol that tells of an error.
Failure = Callable[[BrokerError], bytes]

STATUS_OF = {
    ResponseCode.SYSTEM_BUSY: grpc.StatusCode.UNAVAILABLE,
    ResponseCode.INVALID_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
}


class UnexpectedError(BrokerError):
    """Something in the broker is wrong."""

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
    """As many calls are running as may."""

    code = ResponseCode.SYSTEM_BUSY

    def __init__(self, calls_max: int) -> None:
        super().__init__(f"{calls_max} calls are running already; call again later")


class Guard:
    """Counts the running calls of a server, and ends those that fail."""

    def __init__(self, log: FailureLog, calls_max: int) -> None:
        self._log = log
        self._calls_max = calls_max
        self.running = 0

    @contextlib.contextmanager
    def passing(self, peer: Callable[[], str], method: str) -> Iterator[None]:
        """Around the work of one call. Raises BrokerError, and grpc.aio's own errors."""
        if self.running >= self._calls_max:
            raise TooManyCallsError(self._calls_max)
        self.running += 1
        try:
            yield
        # Calls that were ended on purpose, and clients that have gone.
        except grpc.aio.BaseError:
            raise
        except DecodeError as error:
            raise MalformedRequestError(method) from error
        except Exception as error:
            self._log.tell(peer(), method, error)
            raise UnexpectedError from error
        finally:
            self.running -= 1


class GuardedHandlers(grpc.GenericRpcHandler):
    """The handlers of another, guarded. Without `failure` calls end with a gRPC status."""

    def __init__(
        self, handlers: grpc.GenericRpcHandler, guard: Guard, failure: Failure | None = None
    ) -> None:
        self._handlers = handlers
        self._guard = guard
        self._failure = failure
        self._guarded: dict[str, Handler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of a method; None for one of another service."""
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
    """One method. Requests are decoded, and responses encoded, within: these may fail, too."""

    def __init__(
        self, name: str, handler: Handler, guard: Guard, failure: Failure | None = None
    ) -> None:
        self._name = name
        self._guard = guard
        self._failure = failure
        self._asks_in_stream = handler.request_streaming
        self._answers_in_stream = handler.response_streaming
        self._decode: Any = handler.request_deserializer
        self._encode: Any = handler.response_serializer
        self._work: Any = handler.stream_stream or handler.unary_stream or handler.unary_unary

    def handler(self) -> Handler:
        """What a server takes up."""
        if not self._answers_in_stream:
            return grpc.unary_unary_rpc_method_handler(self._answer)
        made = grpc.unary_stream_rpc_method_handler
        if self._asks_in_stream:
            made = grpc.stream_stream_rpc_method_handler
        if inspect.isasyncgenfunction(self._work):
            return made(self._stream)
        return made(self._write, response_serializer=self._encode_unless_bytes)

    async def _answer(self, data: bytes, context: Any) -> bytes:
        try:
            with self._guard.passing(context.peer, self._name):
                answer: bytes = self._encode(await self._work(self._decode(data), context))
                return answer
        except BrokerError as error:
            return await self._failed(context, error)

    async def _stream(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            with self._guard.passing(context.peer, self._name):
                asked = self._asked(request, context)
                async with contextlib.aclosing(self._work(asked, context)) as answers:
                    async for answer in answers:
                        yield self._encode(answer)
        except BrokerError as error:
            yield await self._failed(context, error)

    async def _write(self, request: Any, context: Any) -> None:
        """For a method that writes its responses by itself."""
        try:
            with self._guard.passing(context.peer, self._name):
                await self._work(self._asked(request, context), context)
        except BrokerError as error:
            await context.write(await self._failed(context, error))

    def _asked(self, request: Any, context: Any) -> Any:
        """What a method gets: a request, or an iterator of requests."""
        return self._read_all(context) if self._asks_in_stream else self._decode(request)

    async def _read_all(self, context: Any) -> AsyncIterator[Any]:
        """Requests as they come. gRPC's own iterator of them is a generator more to go through."""
        while (data := await context.read()) is not grpc.aio.EOF:
            yield self._decode(data)

    def _encode_unless_bytes(self, answer: Any) -> bytes:
        encoded: bytes = answer if isinstance(answer, bytes) else self._encode(answer)
        return encoded

    async def _failed(self, context: Any, error: BrokerError) -> bytes:
        if self._failure is None:
            await context.abort(STATUS_OF.get(error.code, grpc.StatusCode.INTERNAL), error.remark)
            raise AssertionError
        return self._failure(error)
