"""`rocketpy health`: a broker's health as an exit code."""

from __future__ import annotations

from typing import Annotated

import typer
from grpc_health.v1 import health_pb2

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import (
    DEFAULT_ENDPOINT,
    TIMEOUT_SECONDS,
    Endpoint,
    asking,
    refuse,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX = 0.1, 3600.0

Timeout = Annotated[
    float,
    typer.Option(
        min=TIMEOUT_SECONDS_MIN, max=TIMEOUT_SECONDS_MAX, help="Seconds to wait for the answer."
    ),
]


def health(
    timeout: Timeout = TIMEOUT_SECONDS,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Say whether a broker serves: exit code 0 if it does, else 1 and a line that says why."""
    with asking(endpoint) as connection:
        status = connection.health(timeout)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    if status != SERVING:
        refuse(f"the broker at {endpoint} is {name}; it is starting or stopping")
    if as_json:
        output.print_json({"endpoint": endpoint, "status": name})
        return
    typer.echo(name)
