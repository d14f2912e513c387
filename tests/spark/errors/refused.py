"""A program under a too old PySpark: reads and writes must be refused, with a reason.

`make test-matrix` runs it by itself, since the test suite needs a PySpark that is accepted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

EXPECTED = f"PySpark {pyspark.__version__} is too old, at least 4.2 is needed"
OPTIONS = {"endpoints": "127.0.0.1:1", "topic": "orders"}


def assert_refused(use: Callable[[], object]) -> None:
    """Exits unless `use` fails with the expected words."""
    try:
        use()
    except PySparkException as error:
        if EXPECTED in str(error):
            return
        sys.exit(f"refused, but in other words: {error}")
    sys.exit(f"PySpark {pyspark.__version__} was accepted")


def main() -> None:
    """Reads and writes as a batch and as a stream."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(1).selectExpr("string(id) as body")
    assert_refused(spark.read.format("rocketpy").options(**OPTIONS).load)
    assert_refused(spark.readStream.format("rocketpy").options(**OPTIONS).load)
    assert_refused(rows.write.format("rocketpy").options(**OPTIONS).mode("append").save)
    spark.stop()
    sys.stdout.write(f"PySpark {pyspark.__version__} is refused, as it should be.\n")


if __name__ == "__main__":
    main()
