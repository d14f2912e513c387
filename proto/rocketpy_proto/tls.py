"""TLS of clients: files, contexts, gRPC credentials, and the reasons of failures.

The connector, the broker's client and the broker as a client of name servers use it. Planners
import it without TLS, so `ssl` and gRPC are imported at their first use.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketpy_proto import proxies

if TYPE_CHECKING:
    import ssl

    import grpc

# The time of a handshake that looks for the reason of a failure.
PROBE_SECONDS = 2.0
# OpenSSL's reasons for an answer that is no TLS record.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


class TlsNames(NamedTuple):
    """The names of a client's options, as its errors show them."""

    tls: str
    ca: str
    cert: str
    key: str
    server_name: str


class TlsFileError(ValueError):
    """Files that cannot be used; `is_ca` if they are the authorities, not the client's pair."""

    def __init__(self, reason: str, *, is_ca: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_ca = is_ca

    def text(self, tls: TlsConfig, names: TlsNames) -> str:
        """Returns the error of the options with these names."""
        if self.is_ca:
            return f"{names.ca} is {tls.ca_file!r}: {self.reason}"
        return f"{names.cert} and {names.key} are {tls.cert_file!r} and {tls.key_file!r}: {self}"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS files in PEM form, and verification.

    Any peer can pose as the server without verification, as in RocketMQ's default. The system's
    authorities apply without `ca_file`. Certificate and key are for servers that ask for one.
    `server_name` is the name in the server's certificate, if it is not the host of the address.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    is_verified: bool = True
    server_name: str | None = None

    @classmethod
    def of(
        cls,
        ca: Path | None,
        certificate: Path | None,
        key: Path | None,
        server_name: str | None = None,
    ) -> TlsConfig:
        """Returns the configuration with these files, which verifies servers."""
        ca_file, cert_file, key_file = (
            None if path is None else str(path) for path in (ca, certificate, key)
        )
        return cls(ca_file, cert_file, key_file, server_name=server_name)

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context. Raises TlsFileError for files that cannot be used."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:
            raise TlsFileError(reason_of(error), is_ca=True) from error
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            try:
                # The password keeps OpenSSL from asking for one.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
            except (OSError, ValueError) as error:
                raise TlsFileError(reason_of(error), is_ca=False) from error
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns the credentials of a gRPC channel, which always verifies the server.

        Without `ca_file` gRPC's list of public authorities applies. Raises TlsFileError.
        """
        import grpc

        # gRPC reports a file that it cannot use at the first call, without a reason.
        self.context()
        return grpc.ssl_channel_credentials(
            _bytes_of(self.ca_file, is_ca=True),
            _bytes_of(self.key_file, is_ca=False),
            _bytes_of(self.cert_file, is_ca=False),
        )


def _bytes_of(path: str | None, *, is_ca: bool) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise TlsFileError(reason_of(error), is_ca=is_ca) from error


def channel_to(
    endpoint: str, options: Sequence[tuple[str, Any]], tls: TlsConfig | None
) -> grpc.Channel:
    """Returns a gRPC channel to an endpoint, plaintext without `tls`. Raises TlsFileError."""
    import grpc

    if tls is None:
        return grpc.insecure_channel(endpoint, [*options])
    name = [] if tls.server_name is None else [("grpc.ssl_target_name_override", tls.server_name)]
    return grpc.secure_channel(endpoint, tls.credentials(), [*options, *name])


def reason_of(error: Exception) -> str:
    """Returns the text of a system error, without its number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def failure_reason(endpoint: str, tls: TlsConfig | None, names: TlsNames) -> str | None:
    """Returns why no call reaches the endpoint, where that is TLS; None for other reasons.

    gRPC often reports a time-out alone, so this opens a connection of its own. It takes
    PROBE_SECONDS at most for each step, and nothing where a proxy is on the way.
    """
    import ssl

    if proxies.proxy_of(endpoint) is not None:
        return None
    try:
        return _tried(endpoint, tls, names)
    except ssl.SSLCertVerificationError as error:
        return (
            f"the certificate of {endpoint} is not accepted ({error.verify_message}); check "
            f"{names.ca} and {names.server_name}"
        )
    except (ssl.SSLError, ConnectionResetError) as error:
        return None if tls is None else _end_of_handshake(endpoint, error, names)
    except (OSError, ValueError):
        return None


def _tried(endpoint: str, tls: TlsConfig | None, names: TlsNames) -> str | None:
    """Returns why a handshake that succeeds is not enough. Raises OSError, ValueError."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    context = (tls or TlsConfig(is_verified=False)).context()
    context.set_alpn_protocols(["h2"])
    name = host if tls is None or tls.server_name is None else tls.server_name
    with (
        socket.create_connection((host, int(port)), PROBE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        if tls is None:
            return f"{endpoint} serves TLS alone; set {names.tls}"
        try:
            # A gRPC server that accepts the client sends its settings at once. In TLS 1.3 it
            # refuses the client's certificate after the client's handshake.
            is_accepted = bool(secured.recv(1))
        except TimeoutError:
            is_accepted = True
        except OSError:
            is_accepted = False
        return None if is_accepted else _refusal(endpoint, names)


def _end_of_handshake(endpoint: str, error: OSError, names: TlsNames) -> str:
    """Returns why a server ends a handshake."""
    import ssl

    is_end = not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)
    if not is_end and getattr(error, "reason", None) not in _NO_TLS:
        return _refusal(endpoint, names)
    return (
        f"{endpoint} serves no TLS; leave out {names.tls}, or name the address of the broker's TLS "
        "port"
    )


def _refusal(endpoint: str, names: TlsNames) -> str:
    return (
        f"{endpoint} refuses the client's certificate, or its lack; check {names.cert} and "
        f"{names.key}"
    )
