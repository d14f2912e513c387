"""Checks of the address that the broker listens on.

Without users any client that reaches the port can read, write and delete everything. So an address
beyond this machine needs users, or the operator's explicit consent.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_proto.texts import address_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; `option` is the name of the port's option.

    If the port is in use and `is_preferred`, a free port replaces it.
    """

    host: str
    port: int
    option: str
    is_preferred: bool = False


class PublicBindError(BrokerError):
    """An address that other machines may reach, without the option `insecure`."""

    text = (
        "--host {host!r} may be reached from other machines, and the broker has no users. A "
        "client that reaches its port can read, write and delete everything. Listen on "
        "127.0.0.1, create users with `rocketpy user add`, or give --insecure if you trust all "
        "such clients"
    )

    def __init__(self, host: str) -> None:
        super().__init__(self.text.format(host=host))
        self.host = host


class PublicNameServerError(PublicBindError):
    """A name server that other machines may reach, without the option `insecure`."""

    text = (
        "--host {host!r} may be reached from other machines, and a name server has no users. "
        "A client that reaches its port can change every route. Listen on 127.0.0.1, accept "
        "only clients with a certificate (--tls-client-ca, --tls-mode enforcing), or give "
        "--insecure if you trust all such clients"
    )


class PublicSlavePortError(PublicBindError):
    """A port for slaves that other machines may reach, without the option `insecure`."""

    text = (
        "--ha-port may be reached from other machines at --host {host!r}, and slaves have no "
        "credentials. A client that reaches it can read the whole log, also on a broker with "
        "users. Listen on 127.0.0.1, or give --insecure if you trust all such clients"
    )


class PortInUseError(BrokerError):
    """An address that cannot be bound."""

    def __init__(
        self, host: str, port: int, option: str = "--port", error: OSError | None = None
    ) -> None:
        ways = {
            errno.EADDRINUSE: (
                f"another program has the port: choose another {option}, or 0 for a free one"
            ),
            errno.EACCES: (
                f"this user lacks the permission: choose another {option}, or 0 for a free one"
            ),
        }
        reason, way = "", ways[errno.EADDRINUSE]
        if error is not None:
            reason = f" ({system_text(error)})"
            way = ways.get(error.errno or 0, "choose an address of this machine with --host")
        super().__init__(f"cannot listen on {host}:{port}{reason}; {way}")


def check_host(
    host: str, *, insecure: bool, has_users: bool = False, is_encrypted: bool = False
) -> None:
    """Raises PublicBindError for an address beyond loopback without users or `insecure`.

    `is_encrypted` means that every connection is in TLS.
    """
    if is_loopback(host) or (has_users and is_encrypted):
        return
    if has_users:
        logger.warning(
            "clients reach %s without encryption: a network that carries their requests can read "
            "messages and use signatures again",
            host,
        )
        return
    if not insecure:
        raise PublicBindError(host)
    logger.warning(
        "each client that reaches %s can read, write and delete everything, since the broker has "
        "no users",
        host,
    )


def check_name_server_host(host: str, *, insecure: bool) -> None:
    """Raises PublicNameServerError for an address beyond loopback without `insecure`."""
    if is_loopback(host):
        return
    if not insecure:
        raise PublicNameServerError(host)
    logger.warning(
        "each client that reaches %s can change every route, since a name server has no users", host
    )


def check_ports(config: BrokerConfig) -> None:
    """Raises PortInUseError where an address cannot be bound now.

    The broker calls it before it opens the store, which may take long. gRPC would bind its port
    only after that, and would log a failure itself.
    """
    _check_port(config.host, config.port, "--port")
    _check_port(config.host, config.tls.port, "--tls-port")
    for port, option in (
        (config.remoting_port, "--remoting-port"),
        (config.name_server_port, "--name-server-port"),
        (config.replication.port, "--ha-port"),
        (config.http_port, "--http-port"),
    ):
        if port not in config.preferred_ports:
            _check_port(config.host, port, option)


def _check_port(host: str, port: int | None, option: str) -> None:
    if not port:
        return
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        raise PortInUseError(host, port, option, error) from error


def console_url(host: str, port: int, *, is_tls: bool) -> str:
    """Returns the console's URL, with loopback if the broker listens on all addresses."""
    shown = host.strip("[]")
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(shown)
        if address.is_unspecified:
            shown = "127.0.0.1" if address.version == 4 else "::1"
    return f"{'https' if is_tls else 'http'}://{address_text(shown or '127.0.0.1', port)}/"


def system_text(error: OSError) -> str:
    """Returns the system's text of an error, in place of asyncio's longer one."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


async def listen(
    address: ListenAddress, make: Callable[[], asyncio.BaseProtocol]
) -> tuple[asyncio.Server, int]:
    """Listens on an address; returns the server and its port. Raises PortInUseError."""
    try:
        server = await _listen(address, address.port, make)
    except PortInUseError:
        if not address.is_preferred:
            raise
        server = await _listen(address, 0, make)
    port: int = server.sockets[0].getsockname()[1]
    if address.port not in {0, port}:
        logger.warning(
            "port %d is in use, so the broker listens on port %d; %s chooses another",
            *(address.port, port, address.option),
        )
    return server, port


async def _listen(
    address: ListenAddress, port: int, make: Callable[[], asyncio.BaseProtocol]
) -> asyncio.Server:
    """Binds a port. Raises PortInUseError."""
    try:
        return await asyncio.get_running_loop().create_server(make, address.host.strip("[]"), port)
    except OSError as error:
        raise PortInUseError(address.host, port, address.option, error) from error


def is_loopback(host: str) -> bool:
    """True if the address is a loopback one or `localhost`; no other name is resolved."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
