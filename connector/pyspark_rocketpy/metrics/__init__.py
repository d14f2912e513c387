"""Metrics of streaming queries for Prometheus: `spark.streams.addListener(QueryMetrics())`.

All of it comes from the progress that Spark reports; no broker is asked. A crash of the driver
takes the numbers along, and the next one counts from 0, as Prometheus expects.
"""

from __future__ import annotations

try:
    import prometheus_client  # noqa: F401 (what follows needs it)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "prometheus-client is missing; install it with: pip install 'pyspark-rocketpy[metrics]'",
        name=error.name,
    ) from None

from pyspark_rocketpy.metrics.listener import QueryMetrics

__all__ = ["QueryMetrics"]
