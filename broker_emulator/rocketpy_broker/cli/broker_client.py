"""Connection of a command to a running broker, and exits on errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from rocketpy_broker.cli import user_credentials
from rocketpy_broker.cli.exits import EXIT_REFUSED, leave_at_once
from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection
from rocketpy_broker.client.errors import UnreachableError
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.standard_output import drop

TIMEOUT_SECONDS = REQUEST_SECONDS_MAX
DEFAULT_ENDPOINT = "127.0.0.1:8081"
PORTS_END = 65_536
Endpoint = Annotated[str, typer.Option(help="host:port of the broker.", envvar="ROCKETPY_ENDPOINT")]


@contextmanager
def asking(endpoint: str) -> Iterator[BrokerConnection]:
    """Yields a connection to the broker; ends the command with the remark of an error."""
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < PORTS_END) or "/" in host:
        refuse(f"the endpoint is {endpoint!r}, accepted is host:port")
    user = user_credentials.present()
    with BrokerConnection(endpoint, user.access_key, user.secret_key) as connection:
        try:
            with connection.faults():
                yield connection
            sys.stdout.flush()
        except UnreachableError as error:
            refuse(
                f"{error.remark} Start one with `rocketpy broker`, or name another with --endpoint"
            )
        except BrokerError as error:
            refuse(error.remark)
        except BrokenPipeError:
            leave_pipe()
        except KeyboardInterrupt:
            # Closing the connection might wait for the call.
            leave_at_once()


def refuse(text: str) -> NoReturn:
    """Ends the command with EXIT_REFUSED and one line of text."""
    typer.echo(f"rocketpy: {text}", err=True)
    raise typer.Exit(EXIT_REFUSED)


def leave_pipe() -> NoReturn:
    """Ends the command after its reader closed the pipe; drops buffered output."""
    drop()
    raise typer.Exit(0)
