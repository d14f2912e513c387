"""`ClientConfig`: whom a client asks. Apart from it, so that gRPC is imported where it is used.

Holds no state.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Whom to ask, and how patiently; times in ms."""

    endpoints: tuple[str, ...]
    connect_timeout_ms: int
    pull_timeout_ms: int = 30_000
    # Bytes of one pull that may have come before they are asked for.
    prefetch_bytes_max: int = 96 << 10
