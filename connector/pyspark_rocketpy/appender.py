"""One Append stream: blocks go out while acknowledgements come back, a bounded number apart.

Holds no state on disk; blocks without an acknowledgement may or may not be stored.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator

import grpc

from pyspark_rocketpy.client import BrokerClient, ClientConfig, check, forget_client
from rocketpy_proto.rocketpy.v1 import broker_pb2

IN_FLIGHT_MAX = 8


class Appender:
    """Sends blocks; `finish` returns when the last one is acknowledged."""

    def __init__(self, client: BrokerClient, config: ClientConfig) -> None:
        self._client = client
        self._config = config
        self._outgoing: queue.SimpleQueue[broker_pb2.AppendRequest | None] = queue.SimpleQueue()
        self._in_flight = 0
        self._call = client.append(self._requests())

    def _requests(self) -> Iterator[broker_pb2.AppendRequest]:
        while (request := self._outgoing.get()) is not None:
            yield request

    def send(self, request: broker_pb2.AppendRequest) -> None:
        """Send a block; waits while too many are unanswered.

        Raises BrokerError for a refused block, ConnectionFailedError.
        """
        if self._in_flight == IN_FLIGHT_MAX:
            self._await_one()
        self._outgoing.put(request)
        self._in_flight += 1

    def finish(self) -> None:
        """Wait for all acknowledgements. Raises BrokerError, ConnectionFailedError."""
        self._outgoing.put(None)
        while self._in_flight:
            self._await_one()

    def _await_one(self) -> None:
        try:
            response = next(self._call)
        except grpc.RpcError as error:
            forget_client(self._config)
            raise self._client.failed(error) from error
        self._in_flight -= 1
        check(response.status)

    def close(self) -> None:
        """End the stream, whatever state it is in."""
        self._outgoing.put(None)
        self._call.cancel()
