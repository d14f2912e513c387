"""Keeps faults of what counts away from what is counted. Lives in memory.

A listener is called in the middle of somebody's work: of a send, of a flush, of a deletion. What
it raises would fail that, or stop the broker; here it costs no more than a number that is too low.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from prometheus_client import CollectorRegistry, Counter

logger = logging.getLogger(__name__)
P = ParamSpec("P")


class SafeListeners:
    """Wraps listeners. Each that fails is told of once, and counted each time."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._uncounted = Counter(
            "rocketpy_uncounted_events",
            "Events that metrics could not count, for a fault of the broker's.",
            registry=registry,
        )
        self._told: set[str] = set()

    def spared(self, listener: Callable[P, None]) -> Callable[P, None]:
        """Returns one that never raises."""
        name = listener.__name__

        @wraps(listener)
        def spared(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                listener(*args, **kwargs)
            except Exception as error:
                self._failed(name, error)

        return spared

    def _failed(self, name: str, error: Exception) -> None:
        self._uncounted.inc()
        if name not in self._told:
            self._told.add(name)
            logger.error("metrics could not count %r; this is told once", name, exc_info=error)
