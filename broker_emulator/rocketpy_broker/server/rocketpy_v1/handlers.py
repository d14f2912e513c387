"""Handlers of methods with one request and one response.

A handler checks a request's size before it decodes it, since decoding takes event loop time. It
checks the names directly after decoding. It sets the connection for the scheduler; streams, which
have other handlers, set it themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, cast

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.server.request_parts import has_more_parts
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.name_rules import Names

Decoded = Message | BrokerError
DecoderOf = Callable[[type[Message], int], Callable[[bytes], Decoded]]
# For a request with blocks or columns of numbers; a valid one has about a dozen parts.
LARGE_PARTS_MAX = 64


def decoder(request: type[Message], bytes_max: int) -> Callable[[bytes], Decoded]:
    """Returns a decoder of requests that checks their size and their names.

    The decoder returns the error of a refused request; it does not raise it.
    """
    names = Names(request.DESCRIPTOR)

    def decode(data: bytes) -> Decoded:
        if len(data) <= bytes_max:
            return _checked(request.FromString(data), names)
        return ParameterIllegalError("bytes of the request", len(data), f"{bytes_max} or fewer")

    return decode


def decoder_of_large(request: type[Message], bytes_max: int) -> Callable[[bytes], Decoded]:
    """Returns a decoder as `decoder` does, for requests with long fields.

    A request of more than `bytes_max` may have at most LARGE_PARTS_MAX parts.
    """
    names = Names(request.DESCRIPTOR)

    def decode(data: bytes) -> Decoded:
        if len(data) <= bytes_max or not has_more_parts(data, request, LARGE_PARTS_MAX):
            return _checked(request.FromString(data), names)
        accepted = f"{LARGE_PARTS_MAX} or fewer in a request of more than {bytes_max} bytes"
        count = f"{LARGE_PARTS_MAX + 1} or more"
        return ParameterIllegalError("number of parts of the request", count, accepted)

    return decode


def _checked(message: Message, names: Names) -> Decoded:
    try:
        names.check(message)
    except BrokerError as error:
        return error
    return message


def all_bounded(
    contract: ModuleType,
    methods: Mapping[str, Callable[..., Any]],
    bytes_max: int,
    decoder_of: DecoderOf = decoder,
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Returns the handlers of methods by name; `contract` is the module with their service.

    A method takes a request and returns its response. The handler sets the status: a returned
    response is a success, None is an empty success, and a BrokerError is a failure. A request that
    the decoder refused is a failure, too.
    """
    (service,) = contract.DESCRIPTOR.services_by_name.values()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for name, method in methods.items():
        described = service.methods_by_name[name]
        decode = decoder_of(GetMessageClass(described.input_type), bytes_max)
        handlers[name] = grpc.unary_unary_rpc_method_handler(
            _answering(method, GetMessageClass(described.output_type)),
            request_deserializer=decode,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
    return handlers


def _answering(
    method: Callable[..., Any], response: type[Message]
) -> Callable[[Decoded, status.Context], Awaitable[Message]]:
    failed: Callable[..., Message] = response

    async def answered(message: Decoded, context: status.Context) -> Message:
        if isinstance(message, BrokerError):
            return failed(status=status.failure(message))
        scheduler.connection.set(context.peer())
        work = method(message)
        # Allows a held method to free its request.
        del message
        try:
            answer: Any = await work
        except BrokerError as error:
            return failed(status=status.failure(error))
        if answer is None:
            answer = response()
        # An empty status is SUCCESS.
        answer.status.SetInParent()
        return cast("Message", answer)

    return answered
