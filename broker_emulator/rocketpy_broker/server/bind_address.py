"""Checks of the address that the broker listens on.

The broker has no credentials and no encryption: any client that reaches its port can read, write
and delete everything. So an address beyond this machine needs the operator's explicit consent.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError

logger = logging.getLogger(__name__)


class PublicBindError(BrokerError):
    """An address that other machines may reach, without the option `insecure`."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"--host {host!r} may be reached from other machines, and the broker has no "
            "credentials and no encryption: whoever reaches its port can read, write and delete "
            "everything; listen on 127.0.0.1, or say --insecure where only those you trust can "
            "reach it"
        )
        self.host = host


class PortInUseError(BrokerError):
    """An address that cannot be bound."""

    def __init__(
        self, host: str, port: int, option: str = "--port", error: OSError | None = None
    ) -> None:
        ways = {
            errno.EADDRINUSE: (
                f"another program has the port: choose another {option}, or 0 for a free one"
            ),
            errno.EACCES: f"this user may not: choose another {option}, or 0 for a free one",
        }
        reason, way = "", ways[errno.EADDRINUSE]
        if error is not None:
            reason = f" ({_reason(error)})"
            way = ways.get(error.errno or 0, "--host names another address of this machine")
        super().__init__(f"cannot listen on {host}:{port}{reason}; {way}")


def check_host(config: BrokerConfig) -> None:
    """Raises PublicBindError for an address beyond loopback without `insecure`."""
    if _is_loopback(config.host):
        return
    if not config.insecure:
        raise PublicBindError(config.host)
    logger.warning(
        "anybody who reaches %s can read, write and delete everything: the broker has no "
        "credentials and no encryption",
        config.host,
    )


def check_port(config: BrokerConfig) -> None:
    """Raises PortInUseError where the address cannot be bound now.

    The broker calls it before it opens the store, which may take long. gRPC would bind the port
    last, and log a failure itself.
    """
    host, port = config.host, config.port
    if port == 0:
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
        raise PortInUseError(host, port, error=error) from error


def _reason(error: OSError) -> str:
    """Returns the system's text of an error; asyncio replaces it with a longer one."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def _is_loopback(host: str) -> bool:
    """True if the address is a loopback one or `localhost`; no other name is resolved."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
