"""Peers of connections: their addresses, errors and foreign protocols.

An address comes from an option or, for brokers, from a name server.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketpy.errors import ConnectionFailedError
from rocketpy_proto.texts import is_port

NAME_SERVER_OPTION = "nameServer"
# Characters shown of an address, which a name server may give at any length.
_SHOWN_MAX = 200
# Bytes that `detect_protocol` examines.
FIRST_BYTES = 9


@dataclass(frozen=True, slots=True)
class Peer:
    """A name server or a broker, by its `host:port`."""

    address: str
    is_name_server: bool = False

    def __str__(self) -> str:
        address = self.address[:_SHOWN_MAX]
        return f"{'name server' if self.is_name_server else 'broker'} {address}"

    @property
    def host(self) -> str:
        """The host, without the brackets of an IPv6 address. Raises ConnectionFailedError."""
        host = self.address.rpartition(":")[0]
        if not host:
            raise self.failed("is not of the form host:port", is_lasting=True)
        return host[1:-1] if host.startswith("[") and host.endswith("]") else host

    @property
    def port(self) -> int:
        """The port. Raises ConnectionFailedError."""
        port = self.address.rpartition(":")[2]
        if not is_port(port):
            raise self.failed("is not of the form host:port", is_lasting=True)
        return int(port)

    def failed(self, problem: str, *, is_lasting: bool = False) -> ConnectionFailedError:
        """Returns the declared error for a problem, with advice."""
        advice = (
            f"check option {NAME_SERVER_OPTION}, and that the name server runs"
            if self.is_name_server
            else f"a name server of option {NAME_SERVER_OPTION} gave this address: check that "
            "the broker runs, and that this machine can reach it"
        )
        return ConnectionFailedError(f"{self} {problem}; {advice}", is_lasting=is_lasting)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limit for an answer, and the option that sets it."""

    ms: int
    option: str


def detect_protocol(first: bytes) -> str | None:
    """Returns the problem with a peer that speaks another protocol, by its first bytes.

    None if the peer may speak RocketMQ's protocol. No frame of RocketMQ starts like one of these
    protocols.
    """
    if first.startswith(b"HTTP/"):
        return "speaks HTTP, not RocketMQ's remoting protocol"
    # SETTINGS, the first frame of HTTP/2: its type, no flags, stream 0.
    if first[3:FIRST_BYTES] == b"\x04\0\0\0\0\0":
        return (
            "speaks HTTP/2, as gRPC does, not RocketMQ's remoting protocol; a broker of rocketpy "
            "is named by option endpoints"
        )
    # A TLS alert or handshake record: the request was no TLS handshake.
    if first.startswith((b"\x15\x03", b"\x16\x03")):
        return "speaks TLS; set option tls to true"
    return None
