"""How commands reach a running broker, and what they say when they do not. Holds no state."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import grpc
import typer

from rocketpy_proto.rocketpy.v1 import admin_pb2_grpc, broker_pb2_grpc, common_pb2

TIMEOUT_SECONDS = 10.0
DEFAULT_ENDPOINT = "127.0.0.1:8081"
Endpoint = Annotated[str, typer.Option(help="host:port of the broker.", envvar="ROCKETPY_ENDPOINT")]


@dataclass(frozen=True, slots=True)
class Stubs:
    """A broker's two services."""

    admin: admin_pb2_grpc.AdminStub
    broker: broker_pb2_grpc.BrokerStub


@contextmanager
def asking(endpoint: str) -> Iterator[Stubs]:
    """Ask the broker there; end with what could not be reached where it does not answer."""
    with grpc.insecure_channel(endpoint) as channel:
        try:
            yield Stubs(admin_pb2_grpc.AdminStub(channel), broker_pb2_grpc.BrokerStub(channel))
        except grpc.RpcError as error:
            code = error.code().name
            sys.exit(f"rocketpy: no broker answers at {endpoint} ({code}); is it running?")


def check(status: common_pb2.Status) -> None:
    """End with the broker's words where it refused."""
    if status.code:
        sys.exit(f"rocketpy: {status.remark} (code {status.code})")
