"""gRPC channels in TLS or plaintext, and reasons for failed ones."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from rocketpy_proto import proxies
from rocketpy_proto.tls import TlsConfig, TlsFileError, TlsNames, reason_of

# The time of a handshake that looks for the reason of a failure.
PROBE_SECONDS = 2.0
# A client of HTTP/2 begins so; a server answers with a frame of this type (RFC 9113, section 3.4).
_HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_FRAME_BYTES, _TYPE_PLACE, _SETTINGS = 9, 3, 4
# OpenSSL's reasons for an answer that is no TLS record.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


def channel_to(
    endpoint: str, options: Sequence[tuple[str, Any]], tls: TlsConfig | None
) -> grpc.Channel:
    """Returns a gRPC channel to an endpoint, plaintext without `tls`. Raises TlsFileError."""
    if tls is None:
        return grpc.insecure_channel(endpoint, [*options])
    name = [] if tls.server_name is None else [("grpc.ssl_target_name_override", tls.server_name)]
    return grpc.secure_channel(endpoint, credentials_of(tls), [*options, *name])


def credentials_of(tls: TlsConfig) -> grpc.ChannelCredentials:
    """Returns the credentials of a gRPC channel, which always verifies the server.

    Without `ca_file` gRPC's list of public authorities applies. Raises TlsFileError.
    """
    # A check here, since gRPC reports an unusable file only at the first call, without a reason.
    tls.context()
    return grpc.ssl_channel_credentials(
        _bytes_of(tls.ca_file, is_ca=True),
        _bytes_of(tls.key_file, is_ca=False),
        _bytes_of(tls.cert_file, is_ca=False),
    )


def _bytes_of(path: str | None, *, is_ca: bool) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise TlsFileError(reason_of(error), is_ca=is_ca) from error


def failure_reason(endpoint: str, tls: TlsConfig | None, names: TlsNames) -> str | None:
    """Returns why no call reaches the endpoint that answers: TLS, or another protocol.

    None for other reasons.

    gRPC often reports only a time-out, so this opens a connection of its own. Each step takes
    PROBE_SECONDS at most. With a proxy on the way it returns None at once.
    """
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
        if tls is None:
            return _other_protocol(endpoint)
        return _end_of_handshake(endpoint, error, names)
    except (OSError, ValueError):
        return None


def _tried(endpoint: str, tls: TlsConfig | None, names: TlsNames) -> str | None:
    """Returns why calls fail after a successful handshake; None for other reasons.

    Raises OSError, ValueError.
    """
    host = endpoint.rpartition(":")[0].strip("[]")
    context = (tls or TlsConfig(is_verified=False)).context()
    context.set_alpn_protocols(["h2"])
    name = host if tls is None or tls.server_name is None else tls.server_name
    with (
        _connected(endpoint) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        if tls is None:
            return f"{endpoint} serves only TLS; set {names.tls}"
        try:
            # A gRPC server that accepts the client sends its settings at once. In TLS 1.3 it
            # refuses the client's certificate after the client's handshake.
            is_accepted = bool(secured.recv(1))
        except TimeoutError:
            is_accepted = True
        except OSError:
            is_accepted = False
        return None if is_accepted else _refusal(endpoint, names)


def _connected(endpoint: str) -> socket.socket:
    """Returns a connection to an endpoint. Raises OSError, ValueError."""
    host, _, port = endpoint.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS)


def _other_protocol(endpoint: str) -> str | None:
    """Returns why a server without TLS takes no call; None if it serves gRPC, or is silent."""
    try:
        with _connected(endpoint) as plain:
            plain.sendall(_HTTP2_START)
            answer = plain.recv(_FRAME_BYTES)
    except ConnectionError:
        answer = b""
    except OSError:
        return None
    if answer[_TYPE_PLACE : _TYPE_PLACE + 1] == bytes([_SETTINGS]):
        return None
    return (
        f"{endpoint} serves another protocol; name the broker's gRPC port, not its HTTP port or a "
        "port for RocketMQ's remoting clients"
    )


def _end_of_handshake(endpoint: str, error: OSError, names: TlsNames) -> str:
    """Returns why a server ends a handshake."""
    is_end = not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)
    if not is_end and getattr(error, "reason", None) not in _NO_TLS:
        return _refusal(endpoint, names)
    return (
        f"{endpoint} serves no TLS; leave out {names.tls}, or name the address of the broker's TLS "
        "port"
    )


def _refusal(endpoint: str, names: TlsNames) -> str:
    return (
        f"{endpoint} refuses the client's certificate, or requires one; check {names.cert} and "
        f"{names.key}"
    )
