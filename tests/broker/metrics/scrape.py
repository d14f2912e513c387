"""A reader of a broker's metrics, as Prometheus is one."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.observability.metrics.families import MetricSource
from rocketpy_broker.services.observability.metrics.lag import GroupLags
from rocketpy_broker.services.observability.metrics.service import MetricsService
from tests.support.broker.running_broker import RunningBroker

NODE = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}


@dataclass(frozen=True)
class Scraped:
    """Samples by name and labels, without the labels that name the broker."""

    samples: dict[str, dict[frozenset[tuple[str, str]], float]]
    types: dict[str, str]

    def value(self, name: str, **labels: str) -> float:
        """Returns the value of the one series with exactly these labels."""
        return self.samples[name][frozenset(labels.items())]

    def sum(self, name: str, **labels: str) -> float:
        """Returns the sum over all series that have these labels."""
        wanted = labels.items()
        return sum(
            value for found, value in self.samples.get(name, {}).items() if wanted <= set(found)
        )


def parsed(text: str) -> Scraped:
    samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    types = {}
    for family in text_string_to_metric_families(text):
        types[family.name] = family.type
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("process_"):
                assert labels.items() >= NODE.items(), sample
            key = frozenset(labels.items() - NODE.items())
            series = samples.setdefault(sample.name, {})
            assert key not in series, f"{sample.name} twice with {labels}"
            series[key] = sample.value
    return Scraped(samples, types)


async def get(running: RunningBroker, path: str) -> tuple[int, str]:
    """Returns status and text of an answer."""
    url = f"http://127.0.0.1:{running.ready.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def scrape(running: RunningBroker) -> Scraped:
    """Returns the metrics of this moment; kept ones have expired."""
    running.clock.advance(1_001)
    status, text = await get(running, "/metrics")
    assert status == 200
    return parsed(text)


def group_lags(running: RunningBroker, **limits: int) -> GroupLags:
    """Returns a new source of the lags of a broker's groups."""
    services, store = running.broker.services, running.broker.store
    counter, committed = services.statistics.counter, services.offsets.committed
    return GroupLags(store, services.topics, committed, counter, running.clock, **limits)


async def metrics_of(source: MetricSource, clock: Clock) -> Scraped:
    """Returns the metrics of one source."""
    pieces = await MetricsService([source], NODE, clock).text()
    return parsed(b"".join(pieces).decode())
