"""Sending blocks and awaiting every acknowledgement, past broken connections and busy brokers.

Blocks go out while answers come back, a bounded number apart. What is not acknowledged is kept,
and sent again in its order over a new stream. Holds no state on disk: when the process dies, blocks
without an acknowledgement may or may not be stored.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import grpc

from pyspark_rocketpy.client import BrokerClient, ClientConfig, check, client_for
from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.retrying import PASSING_ERRORS, Retries, RetryPolicy
from rocketpy_proto.rocketpy.v1.broker_pb2 import AppendRequest, AppendResponse

IN_FLIGHT_MAX = 8

Acknowledge: TypeAlias = Callable[[AppendRequest, AppendResponse], None]


class Appender:
    """Sends blocks; calls `acknowledge` for each, in order. `close` it, whatever happened."""

    def __init__(
        self,
        config: ClientConfig,
        policy: RetryPolicy,
        send_timeout_ms: int,
        acknowledge: Acknowledge,
    ) -> None:
        self._config = config
        self._retries = Retries(config, policy)
        self._send_timeout_ms = send_timeout_ms
        self._acknowledge = acknowledge
        self._unacknowledged: deque[AppendRequest] = deque()
        self._stream: _Stream | None = None

    def send(self, request: AppendRequest) -> None:
        """Send a block; waits while too many are unanswered.

        Raises BrokerError for a refused block, ConnectionFailedError.
        """
        if len(self._unacknowledged) == IN_FLIGHT_MAX:
            self._await_one()
        stream = self._open()
        self._unacknowledged.append(request)
        stream.send(request)

    def finish(self) -> None:
        """Wait for all acknowledgements. Raises BrokerError, ConnectionFailedError."""
        while self._unacknowledged:
            self._await_one()

    def _open(self) -> _Stream:
        """The stream; a new one is given first what the last one left."""
        if self._stream is None:
            self._stream = _Stream(client_for(self._config))
            for request in self._unacknowledged:
                self._stream.send(request)
        return self._stream

    def _await_one(self) -> None:
        while True:
            try:
                response = self._open().answer(self._send_timeout_ms)
                check(response.status)
            except PASSING_ERRORS as error:
                # Blocks behind a refused one may be stored already; they go again behind it.
                self.close()
                self._retries.pause(error)
            else:
                break
        self._retries.succeeded()
        self._acknowledge(self._unacknowledged.popleft(), response)

    def close(self) -> None:
        """End the stream, whatever state it is in."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Stream:
    """One Append call, and the thread that hears its answers, so that no wait is without end."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._outgoing: queue.SimpleQueue[AppendRequest | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[AppendResponse | grpc.RpcError | None] = (
            queue.SimpleQueue()
        )
        self._call = client.append(iter(self._outgoing.get, None))
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            for response in self._call:
                self._answers.put(response)
        except grpc.RpcError as error:
            self._answers.put(error)
        else:
            self._answers.put(None)

    def send(self, request: AppendRequest) -> None:
        self._outgoing.put(request)

    def answer(self, timeout_ms: int) -> AppendResponse:
        """The next answer. Raises ConnectionFailedError."""
        try:
            answer = self._answers.get(timeout=timeout_ms / 1000)
        except queue.Empty as error:
            raise ConnectionFailedError(
                f"{self._client.endpoint} has not acknowledged a block within {timeout_ms} ms; see "
                "whether the broker still runs, or set option sendTimeoutMs higher"
            ) from error
        if answer is None:
            raise ConnectionFailedError(f"{self._client.endpoint} ended the stream of blocks")
        if isinstance(answer, grpc.RpcError):
            raise self._client.failed(answer) from answer
        return answer

    def close(self) -> None:
        self._outgoing.put(None)
        self._call.cancel()
        self._listener.join()
