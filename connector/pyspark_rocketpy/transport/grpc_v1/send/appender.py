"""Stream of blocks with acknowledgements, over broken connections and busy brokers.

A bounded number of blocks is unacknowledged at a time. Unacknowledged blocks are kept, and sent
again in order over a new stream. Blocks without an acknowledgement may or may not be stored when
the process dies.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.transport.grpc_v1.client import AnswerT, GrpcClient, check, client_for
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import leaving_other_stores, retries_for
from pyspark_rocketpy.transport.retries import RETRIABLE_ERRORS
from pyspark_rocketpy.transport.values import RetryPolicy

if TYPE_CHECKING:
    from grpc import _CallIterator

IN_FLIGHT_MAX = 8

RequestT = TypeVar("RequestT")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamForm(Generic[RequestT, AnswerT]):
    """A method that takes blocks, and a handler for each answer."""

    open: Callable[[GrpcClient, Iterator[RequestT]], _CallIterator[AnswerT]]
    acknowledge: Callable[[RequestT, AnswerT], None] = lambda _request, _answer: None
    # Time limit for a cancelled call to end. grpcio 1.75 lost a call when its connection ended at
    # the call's start.
    cancel_seconds_max: float = 5.0


class Appender(Generic[RequestT, AnswerT]):
    """A sender of blocks, acknowledged in order. The caller must `close` it, also after errors."""

    def __init__(
        self,
        config: ClientConfig,
        policy: RetryPolicy,
        send_timeout_ms: int,
        form: StreamForm[RequestT, AnswerT],
    ) -> None:
        self._form = form
        self._config = config
        self._retries = retries_for(config, policy)
        self._send_timeout_ms = send_timeout_ms
        self._unacknowledged: deque[RequestT] = deque()
        self._stream: _Stream[RequestT, AnswerT] | None = None

    def send(self, request: RequestT) -> None:
        """Sends a block; waits while too many are unacknowledged.

        Raises BrokerError for a refused block, ConnectionFailedError.
        """
        if len(self._unacknowledged) == IN_FLIGHT_MAX:
            self._await_one()
        self._retried(lambda stream: stream.send(request))
        self._unacknowledged.append(request)

    def finish(self) -> None:
        """Waits for all acknowledgements. Raises BrokerError, ConnectionFailedError."""
        while self._unacknowledged:
            self._await_one()

    def _open(self) -> _Stream[RequestT, AnswerT]:
        """Returns the stream; a new one first gets the unacknowledged blocks."""
        if self._stream is None:
            self._stream = _Stream(client_for(self._config), self._form)
            for request in self._unacknowledged:
                self._stream.send(request)
        return self._stream

    def _await_one(self) -> None:
        response = self._retried(lambda stream: stream.answer(self._send_timeout_ms))
        self._retries.succeeded()
        self._form.acknowledge(self._unacknowledged.popleft(), response)

    def _retried(self, act: Callable[[_Stream[RequestT, AnswerT]], T]) -> T:
        """Returns the result of `act`, on as many streams as the retries allow."""
        while True:
            try:
                with leaving_other_stores(self._config):
                    return act(self._open())
            except RETRIABLE_ERRORS as error:
                # Blocks after a refused one may be stored already; they are sent again after it.
                self.close()
                self._retries.pause(error)

    def close(self) -> None:
        """Ends the stream, in whatever state it is."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Stream(Generic[RequestT, AnswerT]):
    """One call, and the thread that receives its answers, so that every wait has a timeout."""

    def __init__(self, client: GrpcClient, form: StreamForm[RequestT, AnswerT]) -> None:
        self._client = client
        self._outgoing: queue.SimpleQueue[RequestT | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[AnswerT | grpc.RpcError | None] = queue.SimpleQueue()
        requests: Iterator[RequestT] = iter(self._outgoing.get, None)
        self._call = form.open(client, requests)
        self._cancel_seconds_max = form.cancel_seconds_max
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

    def send(self, request: RequestT) -> None:
        self._outgoing.put(request)

    def answer(self, timeout_ms: int) -> AnswerT:
        """Returns the next successful answer. Raises ConnectionFailedError, BrokerError."""
        try:
            answer = self._answers.get(timeout=timeout_ms / 1000)
        except queue.Empty as error:
            raise ConnectionFailedError(
                f"{self._client.endpoint} has not acknowledged a block within {timeout_ms} ms; "
                "check that the broker runs, or set option sendTimeout higher"
            ) from error
        if answer is None:
            raise ConnectionFailedError(
                f"{self._client.endpoint} ended the stream of blocks; check that the broker runs"
            )
        if isinstance(answer, grpc.RpcError):
            raise self._client.failed(answer) from answer
        check(answer.status)
        return answer

    def close(self) -> None:
        """Cancels the call. The thread of a call that gRPC has lost is left: it never ends."""
        self._outgoing.put(None)
        self._call.cancel()
        self._listener.join(self._cancel_seconds_max)
