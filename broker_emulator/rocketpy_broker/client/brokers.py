"""What broker this is, and how it does. Holds no state."""

from __future__ import annotations

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection
from rocketpy_proto.rocketpy.v1 import admin_pb2


def broker_info(connection: BrokerConnection) -> admin_pb2.GetBrokerInfoResponse:
    """Version, names and limits. Raises UnreachableError, RefusedError."""
    request = admin_pb2.GetBrokerInfoRequest()
    response: admin_pb2.GetBrokerInfoResponse = connection.ask(
        lambda: connection.admin.GetBrokerInfo(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response


def broker_status(connection: BrokerConnection) -> admin_pb2.GetBrokerStatusResponse:
    """Its directory, what waits, who is connected. Raises UnreachableError, RefusedError."""
    request = admin_pb2.GetBrokerStatusRequest()
    response: admin_pb2.GetBrokerStatusResponse = connection.ask(
        lambda: connection.admin.GetBrokerStatus(request, timeout=REQUEST_SECONDS_MAX)
    )
    return response
