"""Whether the address to listen on can be bound, and may be one that others reach. No state.

The broker has no credentials and no encryption: whoever reaches its port can read, write and
delete everything. So an address beyond this machine takes an explicit consent.
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
    """The address can be reached by others, and nobody has consented to that."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"--host {host!r} may be reached from other machines, and the broker has no "
            "credentials and no encryption: whoever reaches its port can read, write and delete "
            "everything; listen on 127.0.0.1, or say --insecure where only those you trust can "
            "reach it"
        )
        self.host = host


class PortInUseError(BrokerError):
    """The address cannot be bound."""

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

    It is asked before the store is opened, which may take long. gRPC would find it out last, and
    write a line of its own.
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
    """In the system's words; asyncio puts longer ones in their place."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def _is_loopback(host: str) -> bool:
    """By its name alone, which the system could resolve to anything but for `localhost`."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
