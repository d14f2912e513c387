"""Metrics page of a broker, in Prometheus's text format.

A snapshot is taken and written in several scheduler slots, so its series are of different times.
Requests during a snapshot share its page. The page is kept for a second, or for nine times the
duration of the snapshot if that is longer. A failed snapshot is not tried again sooner. So all
requests together take at most a tenth of the broker's time. The page stays in pieces, since a copy
of tens of megabytes takes long. State: the kept page, in memory only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import chain
from types import TracebackType
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.observability.metrics.families import (
    FAMILIES,
    MetricSource,
    Series,
)

KEPT_MS_MIN = 1_000
KEPT_TIMES = 9
# A slot ends after this time, or with this number of samples, whose text takes 1.5 ms to write.
SLOT_MS = 1.0
SAMPLES_A_SLOT = 200


class _Given(Collector):
    """A collector of given families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Returns the families."""
        return self._families


class MetricsService:
    """The metrics of one broker; `node` are labels of each series."""

    def __init__(self, sources: Sequence[MetricSource], node: dict[str, str], clock: Clock) -> None:
        self._sources = sources
        self._node = node
        self._clock = clock
        self._process = ProcessCollector(registry=None)
        self._gauges: list[tuple[str, Callable[[], float]]] = []
        self._turn = asyncio.Lock()
        self._kept: Sequence[bytes] | Exception = ()
        self._trace: TracebackType | None = None
        self._kept_until_ms = float("-inf")

    def watch(self, name: str, value: Callable[[], float]) -> None:
        """Adds a gauge of FAMILIES without labels; each snapshot calls `value`."""
        self._gauges.append((name, value))

    async def text(self) -> Sequence[bytes]:
        """Returns a new or kept page in pieces. Raises the error of a source."""
        async with self._turn:
            begin_ms = self._clock.monotonic_ms()
            if begin_ms >= self._kept_until_ms:
                try:
                    self._kept = await self._snapshot()
                except Exception as error:
                    self._kept, self._trace = error, error.__traceback__
                end_ms = self._clock.monotonic_ms()
                kept_ms = max((end_ms - begin_ms) * KEPT_TIMES, KEPT_MS_MIN)
                self._kept_until_ms = end_ms + kept_ms
            if isinstance(self._kept, Exception):
                # Resets the traceback: each raise would make it longer.
                raise self._kept.with_traceback(self._trace)
            return self._kept

    async def _snapshot(self) -> Sequence[bytes]:
        """Returns the page of a new snapshot."""
        texts: dict[str, list[bytes]] = {}
        async for parts in self._parts():
            for name, part in parts.items():
                text, known = generate_latest(_Given(part)), texts.setdefault(name, [])
                # Further parts of a family are without its HELP and TYPE lines.
                known.append(text.split(b"\n", 2)[2] if known else text)
        process = generate_latest(self._process)
        return [*chain.from_iterable(texts.values()), process]

    async def _parts(self) -> AsyncIterator[dict[str, Any]]:
        """Yields parts of the families, as many as a scheduler slot has time for."""
        parts, count = {name: _empty(name, self._node) for name in FAMILIES}, 0
        begin_ms = self._clock.monotonic_ms()
        async for series in self._series():
            if series is not None:
                name, labels, *value = series
                part = parts.get(name) or parts.setdefault(name, _empty(name, self._node))
                before = len(part.samples)
                part.add_metric([*map(_shown, labels), *self._node.values()], *value)
                count += len(part.samples) - before
            if count >= SAMPLES_A_SLOT or self._clock.monotonic_ms() - begin_ms >= SLOT_MS:
                yield parts
                parts, count = {}, 0
                await take_slot("metrics")
                begin_ms = self._clock.monotonic_ms()
        yield parts

    async def _series(self) -> AsyncIterator[Series | None]:
        for name, value in self._gauges:
            yield name, (), value()
        for source in self._sources:
            async for series in source.series():
                yield series


def _empty(name: str, node: Iterable[str]) -> Any:
    """Returns a family of prometheus_client without series."""
    make, labels, documentation = FAMILIES[name]
    return make(name, documentation, labels=[*labels, *node])


def _shown(text: str) -> str:
    """Returns text with invalid Unicode escaped; names from foreign files may hold it."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
