"""Methods for heartbeats and the end of clients.

Source: ClientActivity, docs/design/grpc_v2_semantics.md section 6.
"""

from __future__ import annotations

from rocketpy_broker.server.apache_v2.clients import ApacheClients
from rocketpy_broker.server.apache_v2.handlers import Methods
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_proto.apache.rocketmq.v2 import service_pb2


class ClientServicer:
    """The methods Heartbeat and NotifyClientTermination."""

    def __init__(self, clients: ApacheClients) -> None:
        self._clients = clients

    def methods(self) -> Methods:
        """Returns the functions by method name."""
        return {"Heartbeat": self._heartbeat, "NotifyClientTermination": self._terminate}

    async def _heartbeat(
        self, request: service_pb2.HeartbeatRequest, caller: RequestContext
    ) -> service_pb2.HeartbeatResponse:
        # The SDK for Go probes a lost connection by an empty heartbeat without headers.
        if caller.client_id or request.ByteSize():
            caller.check_client_id()
            await self._clients.renew(caller, request)
        return service_pb2.HeartbeatResponse()

    async def _terminate(
        self, _request: service_pb2.NotifyClientTerminationRequest, caller: RequestContext
    ) -> service_pb2.NotifyClientTerminationResponse:
        caller.check_client_id()
        self._clients.terminate(caller)
        return service_pb2.NotifyClientTerminationResponse()
