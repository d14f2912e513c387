"""Handlers of methods with one request and one response. Holds no state.

A bounded request is measured before it is decoded, since decoding takes time on the event loop.
Each call tells the loop's turns whose it is; streams, which are not made here, do so themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import grpc
from google.protobuf.message import Message

from rocketpy_broker import turns
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.server.rocketpy_v1 import status


def unary(method: Callable[..., Any], request: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of `method`, which takes a `request`."""

    async def called(message: Message, context: status.Context) -> Message:
        turns.connection.set(context.peer())
        answer: Message = await method(message, context)
        return answer

    return grpc.unary_unary_rpc_method_handler(
        called,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def decoder(
    request: type[Message], bytes_max: int
) -> Callable[[bytes], Message | ParameterIllegalError]:
    """Decodes a request, or says that it is too large."""

    def decode(data: bytes) -> Message | ParameterIllegalError:
        if len(data) <= bytes_max:
            return request.FromString(data)
        return ParameterIllegalError("bytes of the request", len(data), f"{bytes_max} or fewer")

    return decode


def bounded(
    method: Callable[..., Any],
    request: type[Message],
    response: Callable[..., Message],
    bytes_max: int,
) -> grpc.RpcMethodHandler[Any, Any]:
    """As `unary`; a larger request is answered by a `response` with a failing status."""

    async def checked(message: Message | ParameterIllegalError, context: status.Context) -> Message:
        if isinstance(message, ParameterIllegalError):
            return response(status=status.failure(message))
        turns.connection.set(context.peer())
        answer: Message = await method(message, context)
        return answer

    return grpc.unary_unary_rpc_method_handler(
        checked,
        request_deserializer=decoder(request, bytes_max),
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def all_bounded(
    messages: ModuleType, methods: Mapping[str, Callable[..., Any]], bytes_max: int
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """The handlers of methods by name; `messages` has each name's Request and Response."""
    return {
        name: bounded(
            method,
            getattr(messages, f"{name}Request"),
            getattr(messages, f"{name}Response"),
            bytes_max,
        )
        for name, method in methods.items()
    }
