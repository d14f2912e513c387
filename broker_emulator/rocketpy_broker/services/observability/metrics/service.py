"""All metrics of a broker as a text, in Prometheus's format.

A snapshot is taken in turns with everybody else's work, and written as text by a thread. Who asks
while one is taken gets it, too, and so does who asks again soon: within a second, or within nine
times as long as it took. One that failed is not tried again sooner. So all who look take a tenth of
the broker's time at most. It stays in pieces: to copy tens of megabytes takes long.
Lives in memory.
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
    """Families that are there already, with labels at each of their samples."""

    def __init__(self, families: Iterable[Metric], labels: dict[str, str]) -> None:
        self._families = families
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yields all of them."""
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
        """Asks for `value` with each snapshot."""
        self._gauges.append((name, documentation, value))

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=True)

    async def text(self) -> Sequence[bytes]:
        """Returns a snapshot in pieces, new or kept. Raises what a source does."""
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
                # As it was raised first: each time adds to it.
                raise self._kept.with_traceback(self._trace)
            return self._kept

    async def _taken(self) -> Sequence[bytes]:
        """Returns a new snapshot."""
        watched = [gauge(name, text, value()) for name, text, value in self._gauges]
        # By the name of a family, which may come in parts.
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
    """Yields all parts in their order, joined to pieces that can be handed to the system at a time."""
    piece, size = [], 0
    for name in list(texts):
        # Taken out, so that a large page is not there twice.
        for part in texts.pop(name):
            piece.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                yield b"".join(piece)
                piece, size = [], 0
    yield b"".join(piece)


def _without_head(text: bytes) -> bytes:
    """Returns a part of a family that has its help and its type already."""
    return text.split(b"\n", 2)[2]
