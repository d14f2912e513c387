"""Prometheus metrics of streaming queries.

A driver adds them by `spark.streams.addListener(QueryMetrics())`. All numbers come from the
progress that Spark reports; no broker receives a request. A crash of the driver loses the numbers.
The next driver counts from 0, as Prometheus expects.
"""

from __future__ import annotations

try:
    import prometheus_client  # noqa: F401 (the import below needs it)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "prometheus-client is missing; install it with: pip install 'pyspark-rocketpy[metrics]'",
        name=error.name,
    ) from None

from pyspark_rocketpy.metrics.listener import QueryMetrics

__all__ = ["QueryMetrics"]
