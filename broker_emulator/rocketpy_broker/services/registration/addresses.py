"""Addresses of name servers, and of the broker for its clients."""

from __future__ import annotations

import ipaddress
import re

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_proto.texts import is_port

# Each has a connection and a task of its own.
NAME_SERVERS_MAX = 16
HOST_NAME = re.compile(r"[a-zA-Z0-9_]([a-zA-Z0-9_.-]{0,252})")


def parse_name_servers(text: str) -> tuple[str, ...]:
    """Returns the addresses of `ns1:9876;ns2:9876`. Raises ParameterIllegalError."""
    found = dict.fromkeys(filter(None, map(str.strip, text.split(";"))))
    for address in found:
        host_and_port(address, "address of a name server")
    if len(found) > NAME_SERVERS_MAX:
        accepted = f"{NAME_SERVERS_MAX} or fewer"
        raise ParameterIllegalError("number of name servers", len(found), accepted)
    return tuple(found)


def host_and_port(address: str, name: str = "address") -> tuple[str, int]:
    """Returns the parts of `name:9876` or `[::1]:9876`.

    Raises ParameterIllegalError with the parameter's `name`.
    """
    host, _, port = address.rpartition(":")
    if not (is_host(host) and is_port(port)):
        raise ParameterIllegalError(name, address, "host:port, such as 127.0.0.1:9876")
    return host.strip("[]"), int(port)


def check_advertised(host: str) -> None:
    """Raises ParameterIllegalError for a host that clients cannot use."""
    if not is_host(host) and not is_host(f"[{host}]"):
        raise ParameterIllegalError("host", host, "a host name or an address, without a port")


def is_host(text: str) -> bool:
    """True if the text is a name, an IPv4 address, or an IPv6 address in brackets."""
    if text.startswith("[") and text.endswith("]"):
        try:
            return ipaddress.ip_address(text[1:-1]).version == 6
        except ValueError:
            return False
    return HOST_NAME.fullmatch(text) is not None
