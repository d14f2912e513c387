"""Clock and sleep of the connector."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Returns the wall time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Returns the monotonic clock in milliseconds; only differences have a meaning."""
    return time.monotonic_ns() // 1_000_000


def sleep_ms(duration_ms: int) -> None:
    """Sleeps; tests replace this function."""
    time.sleep(duration_ms / 1000)
