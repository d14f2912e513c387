"""A store that accepts a limited number of appends."""

from __future__ import annotations

from tests.broker.batches.conftest import room_for

__all__ = ["room_for"]
