"""Whether the address to listen on may be one that others reach. Holds no state.

The broker has no credentials and no encryption: whoever reaches its port can read, write and
delete everything. So an address beyond this machine takes an explicit consent.
"""

from __future__ import annotations

import ipaddress
import logging

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError

logger = logging.getLogger(__name__)


class ExposedHostError(BrokerError):
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

    def __init__(self, host: str, port: int, option: str = "--port") -> None:
        super().__init__(
            f"cannot listen on {host}:{port}; another program has the port or the address is "
            f"not this machine's: choose another {option}, or 0 for a free one"
        )


def check_host(config: BrokerConfig) -> None:
    """Raises ExposedHostError for an address beyond loopback without `insecure`."""
    if _is_loopback(config.host):
        return
    if not config.insecure:
        raise ExposedHostError(config.host)
    logger.warning(
        "anybody who reaches %s can read, write and delete everything: the broker has no "
        "credentials and no encryption",
        config.host,
    )


def _is_loopback(host: str) -> bool:
    """By its name alone, which the system could resolve to anything but for `localhost`."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
