"""Handlers of methods with one request and one response. Holds no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message


def unary(method: Callable[..., Any], request: type[Message]) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of `method`, which takes a `request`."""
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )
