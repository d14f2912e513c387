"""A gRPC server that answers every method of the contract as a test says, also with nonsense.

It reads requests only through the given answers, and stores nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pyspark_rocketpy.transport.grpc_v1.client import forget_client
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from rocketpy_proto.rocketpy.v1 import (
    admin_pb2,
    broker_pb2,
    groups_pb2,
    retry_pb2,
    transactions_pb2,
)

_FILES = (admin_pb2, broker_pb2, groups_pb2, retry_pb2, transactions_pb2)
METHODS: Mapping[str, MethodDescriptor] = {
    method.name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
# Faults without a message: no answer, and an answer that is not protobuf.
SILENCE, GARBAGE = "silence", b"\xff\xff\xff"
# Otherwise gRPC itself would retry first.
_NO_RETRY_OF_GRPC = (("grpc-retry-pushback-ms", "-1"),)
Fault = Message | grpc.StatusCode | str | bytes
Right = Callable[[Any], Message]


@dataclass
class AnsweringServer:
    """A server; `right` are the right answers by method, `faults` replace them while present."""

    right: Mapping[str, Right]
    faults: dict[str, Fault] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    requests: list[Any] = field(default_factory=list)
    port: int = 0

    @property
    def config(self) -> ClientConfig:
        """Configuration of a patient client of this server."""
        return ClientConfig((f"127.0.0.1:{self.port}",), 30_000)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Returns the handler of a method."""
        method = METHODS[details.method.rpartition("/")[2]]
        read = GetMessageClass(method.input_type).FromString

        def single(request: Any, context: grpc.ServicerContext) -> bytes:
            return self._answer(method.name, request, context)

        def stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
            for request in requests:
                yield self._answer(method.name, request, context)

        def many(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield self._answer(method.name, request, context)

        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, read)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(many, read)
        return grpc.unary_unary_rpc_method_handler(single, read)

    def _answer(self, name: str, request: Any, context: grpc.ServicerContext) -> bytes:
        self.calls[name] += 1
        self.requests.append(request)
        fault = self.faults.get(name)
        if isinstance(fault, grpc.StatusCode):
            context.set_trailing_metadata(_NO_RETRY_OF_GRPC)
            context.abort(fault, "the test says so")
        if fault == SILENCE:
            self._keep_silent(context)
        if isinstance(fault, bytes):
            return fault
        answer = fault if isinstance(fault, Message) else self.right[name](request)
        return answer.SerializeToString()

    def _keep_silent(self, context: grpc.ServicerContext) -> None:
        """Waits until the client has gone."""
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait()
        context.abort(grpc.StatusCode.CANCELLED, "nobody listens")


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, server: AnsweringServer) -> None:
        self._server = server

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        return self._server.service(details)


@contextmanager
def answering(right: Mapping[str, Right]) -> Iterator[AnsweringServer]:
    """Starts a server on a free port; its client is forgotten at the end."""
    answers = AnsweringServer(right)
    # Calls without an answer occupy a thread each.
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([_Handlers(answers)])
    answers.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield answers
    finally:
        forget_client(answers.config)
        server.stop(None).wait()
