"""Metrics page of a broker, in Prometheus's text format.

A snapshot is taken in several scheduler slots, and a thread renders it as text. Requests during a
snapshot share its page. The page is kept for a second, or for nine times the duration of the
snapshot if that is longer. A failed snapshot is not tried again sooner. So all requests together
take at most a tenth of the broker's time. The page stays in pieces, since a copy of tens of
megabytes takes long. State: the kept page, in memory only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.observability.metrics.families import MetricSource, gauge
from rocketpy_broker.services.observability.metrics.labels import labelled

KEPT_MS_MIN = 1_000
KEPT_TIMES = 9
PIECE_BYTES = 65_536
T = TypeVar("T")


class _Given(Collector):
    """A collector of given families, with labels added to each sample."""

    def __init__(self, families: Iterable[Metric], labels: dict[str, str]) -> None:
        self._families = families
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yields all families."""
        for family in self._families:
            yield labelled(family, self._labels)


class MetricsService:
    """The metrics of one broker."""

    def __init__(
        self,
        events: CollectorRegistry,
        sources: Sequence[MetricSource],
        node_labels: dict[str, str],
        clock: Clock,
    ) -> None:
        self._events = events
        self._sources = sources
        self._node_labels = node_labels
        self._clock = clock
        self._process = ProcessCollector(registry=None)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._turn = asyncio.Lock()
        self._kept: Sequence[bytes] | Exception = ()
        self._trace: TracebackType | None = None
        self._kept_until_ms = float("-inf")

    def watch(self, name: str, documentation: str, value: Callable[[], float]) -> None:
        """Adds a gauge; each snapshot calls `value`."""
        self._gauges.append((name, documentation, value))

    def close(self) -> None:
        """Waits for the rendering and ends the thread."""
        self._thread.shutdown(wait=True)

    async def text(self) -> Sequence[bytes]:
        """Returns a new or kept page in pieces. Raises the error of a source."""
        async with self._turn:
            begin_ms = self._clock.monotonic_ms()
            if begin_ms >= self._kept_until_ms:
                try:
                    self._kept = await self._taken()
                except Exception as error:
                    self._kept, self._trace = error, error.__traceback__
                end_ms = self._clock.monotonic_ms()
                kept_ms = max((end_ms - begin_ms) * KEPT_TIMES, KEPT_MS_MIN)
                self._kept_until_ms = end_ms + kept_ms
            if isinstance(self._kept, Exception):
                # The first traceback: each raise would extend it.
                raise self._kept.with_traceback(self._trace)
            return self._kept

    async def _taken(self) -> Sequence[bytes]:
        """Returns the page of a new snapshot."""
        watched = [gauge(name, text, value()) for name, text, value in self._gauges]
        # Texts by family name; a family may have several parts.
        texts = {"": [await self._written(watched)]}
        for source in self._sources:
            async with contextlib.aclosing(source.families()) as families:
                async for family in families:
                    text = await self._written([family])
                    known = texts.setdefault(family.name, [])
                    known.append(_without_head(text) if known else text)
        texts[""] += [
            await self._in_thread(lambda: _text(self._events.collect(), self._node_labels)),
            await self._in_thread(lambda: _text(self._process.collect(), {})),
        ]
        return await self._in_thread(lambda: list(_pieces(texts)))

    async def _written(self, families: Iterable[Metric]) -> bytes:
        return await self._in_thread(lambda: _text(families, self._node_labels))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _text(families: Iterable[Metric], labels: dict[str, str]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families, labels))
    return generate_latest(registry)


def _pieces(texts: dict[str, list[bytes]]) -> Iterator[bytes]:
    """Yields all parts in order, joined to pieces of about PIECE_BYTES for the socket."""
    piece, size = [], 0
    for name in list(texts):
        # Removed from the dict, so that a large page is not in memory twice.
        for part in texts.pop(name):
            piece.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield b"".join(piece)
                piece, size = [], 0
    yield b"".join(piece)


def _without_head(text: bytes) -> bytes:
    """Returns a further part of a family without its HELP and TYPE lines."""
    return text.split(b"\n", 2)[2]
