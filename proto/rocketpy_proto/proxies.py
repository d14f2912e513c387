"""Proxies of gRPC connections, from the environment; none to loopback.

gRPC reads `grpc_proxy`, `https_proxy` and `http_proxy`, in lower case, and takes the first that is
set. It excepts hosts of `no_grpc_proxy`, or of `no_proxy`. This module always excepts loopback, and
reads `NO_PROXY` if neither of the two is set. `*` excepts all hosts.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
EXCEPTION_VARIABLES = ("no_grpc_proxy", "no_proxy", "NO_PROXY")
_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback", "localhost.localdomain"})
_SCHEMES = ("dns:", "ipv4:", "ipv6:")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, `host:port` without its credentials, and the variable that names it."""

    address: str
    variable: str


def channel_options(endpoint: str) -> list[tuple[str, int]]:
    """Returns the options of a gRPC channel to this endpoint that concern proxies."""
    return [] if proxy_of(endpoint) is not None else [("grpc.enable_http_proxy", 0)]


def proxy_note(endpoint: str) -> str:
    """Returns the proxy on the way to an endpoint, as an error text names it; empty for none."""
    proxy = proxy_of(endpoint)
    if proxy is None:
        return ""
    return (
        f" through proxy {proxy.address} of environment variable {proxy.variable} "
        "(name the host in no_proxy for a direct way)"
    )


def proxy_of(endpoint: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """Returns the proxy on the way to an endpoint, `host:port`; None for a direct connection."""
    variable = next((name for name in PROXY_VARIABLES if name in environment), None)
    if variable is None:
        return None
    address = _address_of(environment[variable])
    if address is None:
        return None
    host = _host_of(endpoint)
    if is_local(endpoint) or _is_excepted(host, environment):
        return None
    return Proxy(address, variable)


def is_local(endpoint: str) -> bool:
    """True if an endpoint names this machine: loopback, 0.0.0.0 or ::, or a Unix socket."""
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return True
    host = _host_of(endpoint).rstrip(".")
    if host in _LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        # inet_aton also reads the short forms that a resolver takes, such as 127.1.
        return socket.inet_aton(host)[0] in {0, 127}
    except OSError:
        return _is_local_v6(host)


def _is_local_v6(host: str) -> bool:
    try:
        address = IPv6Address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped
    return address.is_loopback or address.is_unspecified or bool(mapped and mapped.is_loopback)


def _is_excepted(host: str, environment: Mapping[str, str]) -> bool:
    variable = next((name for name in EXCEPTION_VARIABLES if name in environment), None)
    entries = "" if variable is None else environment[variable].lower()
    return any(_covers(entry.strip(), host) for entry in entries.split(",") if entry.strip())


def _covers(entry: str, host: str) -> bool:
    """True if an entry is the host, a domain above it, a network with it, or `*`."""
    domain = entry.strip("[]").lstrip(".")
    if entry == "*" or host == domain or host.endswith(f".{domain}"):
        return True
    try:
        return ip_address(host) in ip_network(domain, strict=False)
    except ValueError:
        return False


def _address_of(url: str) -> str | None:
    """Returns `host:port` of a proxy's URL; None for a URL that gRPC ignores."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.netloc:
        return None
    return parts.netloc.rpartition("@")[2]


def _host_of(endpoint: str) -> str:
    """Returns the host of `host:port`, in lower case and without brackets."""
    for scheme in _SCHEMES:
        endpoint = endpoint.removeprefix(scheme)
    endpoint = endpoint.rpartition("/")[2]
    host, colon, port = endpoint.rpartition(":")
    has_port = bool(colon) and port.isdecimal() and (":" not in host or host.endswith("]"))
    return (host if has_port else endpoint).strip("[]").lower()
