"""Guard against errors of metric listeners.

A listener is called during a send, a flush or a deletion. Its error would fail that work, or stop
the broker; with this guard only a metric is too low. State: names of failed listeners, in memory
only.
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
    """Wrappers of listeners; an error is counted each time, and logged once per listener."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._uncounted = Counter(
            "rocketpy_uncounted_events",
            "Events that metrics could not count, for a fault of the broker's.",
            registry=registry,
        )
        self._told: set[str] = set()

    def spared(self, listener: Callable[P, None]) -> Callable[P, None]:
        """Returns a wrapper of the listener that never raises."""
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
