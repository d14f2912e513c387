"""Wiring of filters."""

from __future__ import annotations

from rocketpy_broker.services.filters.service import FilterService


def build() -> FilterService:
    """Returns the filter service of one broker."""
    return FilterService()
