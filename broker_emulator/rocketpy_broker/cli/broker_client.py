"""How commands reach a running broker, and what they say when they do not. Holds no state."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import grpc
import typer

from rocketpy_proto.rocketpy.v1 import admin_pb2_grpc, common_pb2

TIMEOUT_SECONDS = 10.0
DEFAULT_ENDPOINT = "127.0.0.1:8081"
Endpoint = Annotated[str, typer.Option(help="host:port of the broker.", envvar="ROCKETPY_ENDPOINT")]


def check(status: common_pb2.Status) -> None:
    """End with the broker's words where it refused."""
    if status.code:
        sys.exit(f"rocketpy: {status.remark} (code {status.code})")


def unreachable(endpoint: str, error: grpc.RpcError) -> NoReturn:
    """End with what could not be reached."""
    sys.exit(f"rocketpy: no broker answers at {endpoint} ({error.code().name}); is it running?")


def admin(endpoint: str) -> admin_pb2_grpc.AdminStub:
    """The broker's administration."""
    return admin_pb2_grpc.AdminStub(grpc.insecure_channel(endpoint))
