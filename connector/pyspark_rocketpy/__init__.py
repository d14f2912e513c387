"""pyspark_rocketpy: the Spark data source `rocketpy` for RocketMQ.

PySpark finds `DefaultSource` by this package's name, in every process it starts, so importing
stays light: no gRPC, PyArrow or NumPy here, and never a session. Imported before the session, it
lets Spark start the Python that imports it (see `python_choice`). Holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_rocketpy.datasource import DefaultSource
from pyspark_rocketpy.python_choice import choose_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

choose_python()

__all__ = ["DefaultSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format known by hand, where PySpark cannot find it (with `addPyFile`)."""
    spark.dataSource.register(DefaultSource)
