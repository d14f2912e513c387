"""`ClientConfig`: endpoints and timeouts of a client.

Apart from the client, so that gRPC is imported only where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Endpoints of a client, and its timeouts in ms."""

    endpoints: tuple[str, ...]
    connect_timeout_ms: int
    pull_timeout_ms: int = 30_000
    # Bytes of one pull that the broker may send ahead.
    prefetch_bytes_max: int = 96 << 10
