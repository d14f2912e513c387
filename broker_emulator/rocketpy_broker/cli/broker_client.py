"""Connection of a command to a running broker, and exits on errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rocketpy_broker.cli import user_credentials
from rocketpy_broker.cli.exits import EXIT_REFUSED, leave_at_once
from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection, tls_of
from rocketpy_broker.client.errors import ClientError, UnreachableError
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.process_tuning import quiet_grpc
from rocketpy_broker.runtime.standard_output import drop
from rocketpy_proto.tls import TlsConfig, TlsNames

TIMEOUT_SECONDS = REQUEST_SECONDS_MAX
DEFAULT_ENDPOINT = "127.0.0.1:8081"
Endpoint = Annotated[str, typer.Option(help="host:port of the broker.", envvar="ROCKETPY_ENDPOINT")]
TLS_NAMES = TlsNames("--tls", "--tls-ca", "--tls-certificate", "--tls-key", "--tls-server-name")
_tls: ContextVar[TlsConfig | None] = ContextVar("tls", default=None)


def connection_options(
    tls: Annotated[
        bool, typer.Option("--tls", envvar="ROCKETPY_TLS", help="Connect to the broker with TLS.")
    ] = False,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="ROCKETPY_TLS_CA",
            help="Authorities that verify the broker, in PEM form. Default: gRPC's list.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="ROCKETPY_TLS_CERTIFICATE", help="The client's certificate, in PEM form."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            envvar="ROCKETPY_TLS_KEY",
            help="The key of --tls-certificate, without a password, in PEM form.",
        ),
    ] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            envvar="ROCKETPY_TLS_SERVER_NAME",
            help="The name in the broker's certificate. Default: the host of --endpoint.",
        ),
    ] = None,
) -> None:
    """Sets the TLS of connections to the broker; ends the command if options conflict."""
    given = (tls_ca, tls_certificate, tls_key, tls_server_name)
    try:
        _tls.set(tls_of(TLS_NAMES, *given, is_used=tls))
    except ClientError as error:
        refuse(error.remark)


_PARAMETERS = inspect.signature(connection_options, eval_str=True).parameters
CONNECTION_NAMES = frozenset(_PARAMETERS)


ADDRESS_NAMES = frozenset({"endpoint", "master_endpoint"})


def with_connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a command with the options of a connection, if it has one of ADDRESS_NAMES."""
    signature = inspect.signature(command, eval_str=True)
    names = {*signature.parameters}
    if not ADDRESS_NAMES & names or names >= CONNECTION_NAMES:
        return command

    @wraps(command)
    def run(*arguments: Any, **values: Any) -> Any:
        connection_options(**{name: values.pop(name) for name in CONNECTION_NAMES & {*values}})
        return command(*arguments, **values)

    parameters = [*signature.parameters.values(), *_PARAMETERS.values()]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def tls_config() -> TlsConfig | None:
    """Returns the TLS of connections to the broker."""
    return _tls.get()


@contextmanager
def asking(endpoint: str) -> Iterator[BrokerConnection]:
    """Yields a connection to the broker; ends the command with the remark of an error."""
    user = user_credentials.current_user()
    quiet_grpc()
    try:
        opened = BrokerConnection(
            endpoint, user.access_key, user.secret_key, tls=_tls.get(), names=TLS_NAMES
        )
    except ClientError as error:
        refuse(error.remark)
    with opened as connection:
        try:
            with connection.faults():
                yield connection
            sys.stdout.flush()
        except UnreachableError as error:
            if error.reason is not None:
                refuse(error.remark)
            refuse(
                f"{error.remark} Start one with `rocketpy broker`, or name another with --endpoint"
            )
        except BrokerError as error:
            refuse(error.remark)
        except BrokenPipeError:
            leave_pipe()
        except KeyboardInterrupt:
            # A normal end would close the connection, which may wait for the call.
            leave_at_once()


def refuse(text: str) -> NoReturn:
    """Ends the command with EXIT_REFUSED and one line of text."""
    typer.echo(f"rocketpy: {text}", err=True)
    raise typer.Exit(EXIT_REFUSED)


def leave_pipe() -> NoReturn:
    """Ends the command after its reader closed the pipe; drops buffered output."""
    drop()
    raise typer.Exit(0)
