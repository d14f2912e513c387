"""`ClientConfig`: endpoints and timeouts of a client.

It is a module of its own, so that gRPC is imported only where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketpy_proto.tls import TlsConfig


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Endpoints, timeouts in ms, the prefetch limit, the user and the TLS of a client."""

    endpoints: tuple[str, ...]
    connect_timeout_ms: int
    pull_timeout_ms: int = 30_000
    # Bytes of one pull that the broker may send ahead.
    prefetch_bytes_max: int = 96 << 10
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    # None for plaintext.
    tls: TlsConfig | None = None
