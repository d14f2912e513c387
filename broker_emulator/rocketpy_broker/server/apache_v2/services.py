"""The gRPC service of `apache.rocketmq.v2`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.apache_v2 import status
from rocketpy_broker.server.apache_v2.access import ApacheV2Access
from rocketpy_broker.server.apache_v2.handlers import SERVICE, Methods, handlers
from rocketpy_proto.apache.rocketmq.v2 import service_pb2


class Servicer(Protocol):
    """A servicer of some methods of the service."""

    def methods(self) -> Methods:
        """Returns the functions of its methods by name."""


class ApacheV2Services:
    """The service, from one or more servicers; other methods answer NOT_IMPLEMENTED."""

    # The stream of telemetry is open while a client runs, and mostly idle.
    idle_methods = frozenset({f"/{SERVICE.full_name}/Telemetry"})

    def __init__(self, servicers: Sequence[Servicer], access: ApacheV2Access | None = None) -> None:
        self.access = access
        methods = {name: each for part in servicers for name, each in part.methods().items()}
        self.methods = {SERVICE.full_name: handlers(methods)}

    @property
    def names(self) -> tuple[str, ...]:
        """The full name of the service."""
        return tuple(self.methods)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns the gRPC handler of the service."""
        return [
            grpc.method_handlers_generic_handler(name, methods)
            for name, methods in self.methods.items()
        ]

    def failure(self, error: BrokerError) -> bytes:
        """Returns an error as an encoded response of any method: each begins with `status`."""
        response = service_pb2.HeartbeatResponse(status=status.failure(error))
        return response.SerializeToString()
