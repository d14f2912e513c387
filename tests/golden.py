"""Where bytes lie that real RocketMQ stores, servers and clients wrote."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "shared" / "golden"
