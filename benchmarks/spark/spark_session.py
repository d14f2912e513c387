"""The Spark session of the source's and sink's benchmarks: local[2], nothing else on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import SparkSession

from benchmarks.spark.synthetic import SyntheticSource

NO_CONFIG: Mapping[str, str] = MappingProxyType({})


@contextmanager
def spark_session(config: Mapping[str, str] = NO_CONFIG) -> Iterator[SparkSession]:
    """Yields a session with the synthetic source registered, and more configuration."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.memory", "4g")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in config.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SyntheticSource)
    try:
        yield spark
    finally:
        spark.stop()
