"""Recorded bytes of real RocketMQ stores, servers and clients.

They are no part of the repository: they are in the folder that ROCKETPY_GOLDEN names, or in
`shared/golden` beside the clone or above it.
"""

from __future__ import annotations

import os
from pathlib import Path

_PLACES = [folder / "shared" / "golden" for folder in Path(__file__).resolve().parents[3:]]


def _golden() -> Path:
    named = os.environ.get("ROCKETPY_GOLDEN")
    if named:
        return Path(named)
    return next((place for place in _PLACES if place.exists()), _PLACES[0])


GOLDEN = _golden()
