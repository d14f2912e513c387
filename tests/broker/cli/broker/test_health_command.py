"""`rocketpy health` against a real broker, real health services, and a silent server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from typer.testing import CliRunner, Result

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app

WAY_OUT = "Start one with `rocketpy broker`, or name another with --endpoint"


def ask(endpoint: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["health", "--endpoint", endpoint, *words])


@contextmanager
def health_service(name: str | None) -> Iterator[str]:
    """Yields the endpoint of a gRPC server with this health status; None: no health service."""
    server = grpc.server(ThreadPoolExecutor(1))
    if name is not None:
        servicer = health.HealthServicer()
        servicer.set("", health_pb2.HealthCheckResponse.ServingStatus.Value(name))
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def assert_one_line(result: Result, line: str) -> None:
    assert (result.exit_code, result.output) == (1, line + "\n")


def test_a_broker_that_serves_is_healthy(rocketpy_broker: LocalBroker) -> None:
    result = ask(rocketpy_broker.endpoint)
    assert (result.exit_code, result.output) == (0, "SERVING\n")


def test_the_endpoint_may_come_from_the_environment(rocketpy_broker: LocalBroker) -> None:
    result = CliRunner().invoke(
        app, ["health"], env={"ROCKETPY_ENDPOINT": rocketpy_broker.endpoint}
    )
    assert result.exit_code == 0


@pytest.mark.parametrize("name", ["NOT_SERVING", "UNKNOWN"])
def test_a_broker_that_does_not_serve_is_not_healthy(name: str) -> None:
    with health_service(name) as endpoint:
        said = f"rocketpy: the broker at {endpoint} is {name}; it is starting or stopping"
        assert_one_line(ask(endpoint), said)


def test_a_server_that_is_no_broker_is_not_healthy() -> None:
    with health_service(None) as endpoint:
        said = f"rocketpy: {endpoint} answers, but is not a rocketpy broker (Method not found!)"
        assert_one_line(ask(endpoint), said)


def test_nothing_at_the_endpoint_is_not_healthy() -> None:
    endpoint = "127.0.0.1:1"
    said = f"rocketpy: no broker answers at {endpoint} (UNAVAILABLE); is it running? {WAY_OUT}"
    assert_one_line(ask(endpoint), said)


def test_silence_ends_with_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"127.0.0.1:{server.getsockname()[1]}"
        fault = f"no broker answers at {endpoint} (DEADLINE_EXCEEDED); is it running?"
        assert_one_line(ask(endpoint, "--timeout", "0.2"), f"rocketpy: {fault} {WAY_OUT}")


def test_a_time_out_of_nothing_is_refused() -> None:
    assert ask("127.0.0.1:1", "--timeout", "0").exit_code == 2
