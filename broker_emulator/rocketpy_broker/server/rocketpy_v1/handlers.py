"""Handlers of methods with one request and one response. Holds no state.

Every request is measured before it is decoded, since decoding takes time on the event loop; its
names are checked when it is decoded, before anything else.
Each call tells the loop's turns whose it is; streams, which are not made here, do so themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import grpc
from google.protobuf.message import Message

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.name_rules import Names
from rocketpy_broker.server.rocketpy_v1.request_parts import has_more_parts

Decoded = Message | BrokerError
DecoderOf = Callable[[type[Message], int], Callable[[bytes], Decoded]]
# Of a request with blocks, or with columns of numbers; a whole one has a dozen.
LARGE_PARTS_MAX = 64


def decoder(request: type[Message], bytes_max: int) -> Callable[[bytes], Decoded]:
    """Decodes a request, or says that it is too large, or which of its names is illegal."""
    names = Names(request.DESCRIPTOR)

    def decode(data: bytes) -> Decoded:
        if len(data) <= bytes_max:
            return _checked(request.FromString(data), names)
        return ParameterIllegalError("bytes of the request", len(data), f"{bytes_max} or fewer")

    return decode


def decoder_of_large(request: type[Message], bytes_max: int) -> Callable[[bytes], Decoded]:
    """As `decoder`, for a request with long fields: a larger one has few parts."""
    names = Names(request.DESCRIPTOR)

    def decode(data: bytes) -> Decoded:
        if len(data) <= bytes_max or not has_more_parts(data, request, LARGE_PARTS_MAX):
            return _checked(request.FromString(data), names)
        accepted = f"{LARGE_PARTS_MAX} or fewer in one of more than {bytes_max} bytes"
        count = f"{LARGE_PARTS_MAX + 1} or more"
        return ParameterIllegalError("number of parts of the request", count, accepted)

    return decode


def _checked(message: Message, names: Names) -> Decoded:
    try:
        names.check(message)
    except BrokerError as error:
        return error
    return message


def bounded(
    method: Callable[..., Any],
    request: type[Message],
    response: Callable[..., Message],
    bytes_max: int,
    decoder_of: DecoderOf = decoder,
) -> grpc.RpcMethodHandler[Any, Any]:
    """Returns the handler of `method`; what is too large is answered by a failing `response`."""

    async def checked(message: Decoded, context: status.Context) -> Message:
        if isinstance(message, BrokerError):
            return response(status=status.failure(message))
        scheduler.connection.set(context.peer())
        work = method(message, context)
        # A method that is held may let its request go.
        del message
        answer: Message = await work
        return answer

    return grpc.unary_unary_rpc_method_handler(
        checked,
        request_deserializer=decoder_of(request, bytes_max),
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def all_bounded(
    messages: ModuleType, methods: Mapping[str, Callable[..., Any]], bytes_max: int
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Returns the handlers of methods by name; `messages` has each name's Request and Response."""
    return {
        name: bounded(
            method,
            getattr(messages, f"{name}Request"),
            getattr(messages, f"{name}Response"),
            bytes_max,
        )
        for name, method in methods.items()
    }
