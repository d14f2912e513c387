"""Builds the room of filters. Holds no state."""

from __future__ import annotations

from rocketpy_broker.services.filters.service import FilterService


def build() -> FilterService:
    """Filters of one broker."""
    return FilterService()
