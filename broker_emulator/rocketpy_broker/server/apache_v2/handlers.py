"""Handlers of the methods: decoding within limits, the caller, and the status.

Each part of a request takes event loop time: in decoding, for permissions, and for the rules of
names. So a request above SMALL_BYTES_MAX is scanned for its number of parts before it is decoded.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.request_parts import has_more_parts
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2

if TYPE_CHECKING:
    from rocketpy_broker.server.apache_v2.request_context import Context

SERVICE = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
SMALL_BYTES_MAX = 32 << 10
# A message with all properties that it may have takes about 450 parts.
PARTS_MAX = 4_096
# A function of a method. It takes the request and its caller. It returns a response, or yields the
# responses of a stream. The method Telemetry takes its stream of requests and the gRPC context.
Method: TypeAlias = Callable[..., Any]
Methods: TypeAlias = Mapping[str, Method]
Decoded: TypeAlias = Message | BrokerError


def handlers(methods: Methods) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Returns the handlers of all methods of the service.

    A response without a status gets OK. A BrokerError becomes the status of a response; so does a
    request that was not decoded. A method without a function answers NOT_IMPLEMENTED.
    """
    return {each.name: _handler(each, methods.get(each.name)) for each in SERVICE.methods}


def _handler(described: MethodDescriptor, method: Method | None) -> grpc.RpcMethodHandler[Any, Any]:
    request = GetMessageClass(described.input_type)
    response = GetMessageClass(described.output_type)
    decode = decoder(request)
    encode = response.SerializeToString
    if described.client_streaming and method is not None:
        return grpc.stream_stream_rpc_method_handler(
            method, request_deserializer=decode, response_serializer=encode
        )
    if described.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _streaming(method or _unserved_stream, response),
            request_deserializer=decode,
            response_serializer=encode,
        )
    return grpc.unary_unary_rpc_method_handler(
        _answering(method or _unserved, response),
        request_deserializer=decode,
        response_serializer=encode,
    )


def decoder(request: type[Message]) -> Callable[[bytes], Decoded]:
    """Returns a decoder; it returns an error for a large request with too many parts."""

    def decode(data: bytes) -> Decoded:
        if len(data) <= SMALL_BYTES_MAX or not has_more_parts(data, request, PARTS_MAX):
            return request.FromString(data)
        return status.StatusError(
            v2.PAYLOAD_TOO_LARGE,
            f"a request of {len(data)} bytes has more than {PARTS_MAX} parts; a request of more "
            f"than {SMALL_BYTES_MAX} bytes may have at most {PARTS_MAX}. Send several requests",
        )

    return decode


def _answering(
    method: Method, response: type[Message]
) -> Callable[[Decoded, Context], Awaitable[Message]]:
    failed: Callable[..., Message] = response

    async def answered(message: Decoded, context: Context) -> Message:
        if isinstance(message, BrokerError):
            return failed(status=status.failure(message))
        scheduler.connection.set(context.peer())
        work = method(message, RequestContext.of(context))
        # Allows a held method to free its request.
        del message
        try:
            answer: Any = await work
        except BrokerError as error:
            return failed(status=status.failure(error))
        if not answer.HasField("status"):
            answer.status.CopyFrom(status.success())
        return cast("Message", answer)

    return answered


def _streaming(
    method: Method, response: type[Message]
) -> Callable[[Decoded, Context], AsyncIterator[Message]]:
    failed: Callable[..., Message] = response

    async def answered(message: Decoded, context: Context) -> AsyncIterator[Message]:
        if isinstance(message, BrokerError):
            yield failed(status=status.failure(message))
            return
        scheduler.connection.set(context.peer())
        work = method(message, RequestContext.of(context))
        del message
        try:
            async with contextlib.aclosing(work) as answers:
                async for answer in answers:
                    yield answer
        except BrokerError as error:
            yield failed(status=status.failure(error))

    return answered


async def _unserved(request: Message, _caller: RequestContext) -> Message:
    name = request.DESCRIPTOR.name.removesuffix("Request")
    raise status.StatusError(v2.NOT_IMPLEMENTED, f"this broker does not serve {name}")


async def _unserved_stream(request: Message, _caller: RequestContext) -> AsyncIterator[Message]:
    yield await _unserved(request, _caller)
