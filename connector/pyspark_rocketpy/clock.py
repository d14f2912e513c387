"""The connector's one look at the time. Holds no state."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall time, milliseconds since 1970."""
    return time.time_ns() // 1_000_000
