"""A gRPC proxy before a broker that holds a call at a chosen point.

A test arms it with a call's name and a moment. The call waits there until the test releases it.
Meanwhile the test may kill the caller or the broker. The proxy passes bytes on unchanged, but
answers some calls itself as a busy broker does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any

import grpc

from rocketpy_proto.rocketpy.v1 import common_pb2, retry_pb2
from tests.support.time_limits import WAIT_SECONDS_MAX

HOST = "127.0.0.1"
BYTES_MAX = 64 << 20
THREADS = 32
REACHED_SECONDS_MAX = WAIT_SECONDS_MAX
LOOK_SECONDS = 1.0
HELD_SECONDS_MAX = WAIT_SECONDS_MAX
# gRPC marks a call without a deadline by a very distant one.
DEADLINE_SECONDS_MAX = 1e6
_OPTIONS = [
    ("grpc.max_receive_message_length", BYTES_MAX),
    ("grpc.max_send_message_length", BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
]
# Every other call has one request and one answer.
PULL, APPEND = "/rocketpy.v1.Broker/Pull", "/rocketpy.v1.Broker/Append"
STAGE_BLOCKS = "/rocketpy.v1.Broker/StageBlocks"
COMMIT_BATCH = "/rocketpy.v1.Broker/CommitBatch"
QUERY_OFFSETS = "/rocketpy.v1.Broker/QueryOffsets"
GET_BROKER_INFO = "/rocketpy.v1.Admin/GetBrokerInfo"
# The status is the first field of every answer.
_BUSY = retry_pb2.SendBackResponse(
    status=common_pb2.Status(code=2, remark="too many requests")
).SerializeToString()


class Moment(str, Enum):
    """The point of a call at which it is held."""

    ASKED = "asked"  # The broker has not seen the request.
    ANSWERED = "answered"  # The broker has answered, and the caller has not received it.


@dataclass
class Hold:
    """One place to hold a call; the first `skip` calls pass."""

    method: str
    moment: Moment
    skip: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def wait_reached(self, look: Callable[[], None] = lambda: None) -> None:
        """Waits until a call is held there; `look` raises if none can be."""
        deadline = time.monotonic() + REACHED_SECONDS_MAX
        while not self.reached.wait(LOOK_SECONDS):
            look()
            assert time.monotonic() < deadline, f"no {self.method} was {self.moment.value}"

    def release(self) -> None:
        """Releases the held call and all later ones."""
        self.released.set()


def _timeout(context: grpc.ServicerContext) -> float | None:
    """Returns the time left of the caller's deadline; None without a deadline."""
    left = context.time_remaining()
    return left if left < DEADLINE_SECONDS_MAX else None


class HoldingProxy(grpc.GenericRpcHandler):
    """A proxy on a free port of loopback, for the broker at `target`."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[self], options=_OPTIONS)
        self._port = self._server.add_insecure_port(f"{HOST}:0")
        self._lock = threading.Lock()
        self._hold: Hold | None = None
        # Per method: the next calls to answer as a busy broker does, and the calls answered so.
        self.busy: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self._port}"

    def hold(self, method: str, moment: Moment, skip: int = 0) -> Hold:
        """Arms one place; releases the one armed before."""
        with self._lock:
            if self._hold is not None:
                self._hold.release()
            self._hold = Hold(method, moment, skip)
            return self._hold

    def _pass(self, method: str, moment: Moment) -> None:
        with self._lock:
            hold = self._hold
            if hold is None or (hold.method, hold.moment) != (method, moment):
                return
            if hold.skip > 0:
                hold.skip -= 1
                return
        hold.reached.set()
        hold.released.wait(HELD_SECONDS_MAX)

    def _is_busy(self, method: str) -> bool:
        with self._lock:
            is_busy = self.refused[method] < self.busy[method]
            self.refused[method] += is_busy
            return is_busy

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Returns the handler of a call, by the call's kind."""
        method = details.method
        if method in {APPEND, STAGE_BLOCKS}:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(method, self._channel.stream_stream(method))
            )
        if method == PULL:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(method, self._channel.unary_stream(method))
            )
        return grpc.unary_unary_rpc_method_handler(self._single(method))

    def _single(self, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            self._pass(method, Moment.ASKED)
            if self._is_busy(method):
                return _BUSY
            forward: Any = self._channel.unary_unary(method)
            try:
                answer: bytes = forward(request, timeout=_timeout(context))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            self._pass(method, Moment.ANSWERED)
            return answer

        return handle

    def _streaming(
        self, method: str, forward: Any
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
        def handle(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            self._pass(method, Moment.ASKED)
            call = forward(request, timeout=_timeout(context))
            context.add_callback(call.cancel)
            try:
                for answer in call:
                    self._pass(method, Moment.ANSWERED)
                    yield answer
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")

        return handle

    def __enter__(self) -> HoldingProxy:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hold is not None:
            self._hold.release()
        self._server.stop(0).wait()
        self._channel.close()
