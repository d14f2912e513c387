"""The gRPC services of `rocketpy.v1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.security.rocketpy_v1_access import RocketpyV1Access
from rocketpy_proto.rocketpy.v1 import admin_pb2

Methods = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]


class Servicer(Protocol):
    """A servicer of one gRPC service, or of some of its methods."""

    def handlers(self, bytes_max: int) -> Methods:
        """Returns the handlers by method name.

        `bytes_max` limits a request, except requests with a few large fields.
        """


class RocketpyV1Services:
    """The services of the protocol, each from one or more servicers."""

    idle_methods: frozenset[str] = frozenset()

    def __init__(
        self,
        servicers: Mapping[str, Sequence[Servicer]],
        request_bytes_max: int,
        access: RocketpyV1Access | None = None,
    ) -> None:
        """Takes the servicers by the name of their service in the package `rocketpy.v1`."""
        self.access = access
        self.methods: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {
            f"rocketpy.v1.{name}": {
                method: handler
                for each in parts
                for method, handler in each.handlers(request_bytes_max).items()
            }
            for name, parts in servicers.items()
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the services."""
        return tuple(self.methods)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns a gRPC handler for each service."""
        return [
            grpc.method_handlers_generic_handler(name, methods)
            for name, methods in self.methods.items()
        ]

    def failure(self, error: BrokerError) -> bytes:
        """Returns an encoded response for any method: all of them have `status` as field 1."""
        response = admin_pb2.CleanExpiredFilesResponse(status=status.failure(error))
        return response.SerializeToString()
