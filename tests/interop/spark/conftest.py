"""A Spark session with a live cluster, and each test's topic in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.interop.cluster.cluster import Cluster
from tests.interop.spark.queries import OfCluster
from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.fixture
def of_cluster(
    request: pytest.FixtureRequest, spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> Iterator[OfCluster]:
    """Yields a topic of this test, with two queues at every master."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    cluster.create_topic(name[:100])
    yield OfCluster(name[:100], spark, cluster, tmp_path)
    for query in spark.streams.active:
        query.stop()
