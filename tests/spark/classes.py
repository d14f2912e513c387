"""Common Spark work of tests, run once in a JVM that archives its classes; see `jvm`."""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

import pyspark_rocketpy  # noqa: F401 (lets Spark start this Python)
from rocketpy_broker import LocalBroker
from tests.support import jvm
from tests.support.spark.home import spark_home


def _collect(frame: DataFrame, _batch_id: int) -> None:
    frame.collect()


def main() -> None:
    """Writes and reads a topic, as a batch and as a stream. Takes the path of the archive."""
    archiving = f"-XX:ArchiveClassesAtExit={sys.argv[1]} -Xlog:disable"
    os.environ["JDK_JAVA_OPTIONS"] = f"{jvm.QUICK} {archiving}"
    os.environ["SPARK_HOME"] = str(spark_home())
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    with LocalBroker() as broker, tempfile.TemporaryDirectory() as folder:
        spark = builder.getOrCreate()
        options = {"endpoints": broker.endpoint, "topic": "T"}
        broker.create_topic("T")
        frame = spark.createDataFrame([("a", "tag"), ("b", None)], "body string, tags string")
        frame.write.format("rocketpy").options(**options).mode("append").save()
        found = spark.read.format("rocketpy").options(**options).load()
        found.selectExpr("cast(body as string)").filter("body > 'a'").collect()
        stream = spark.readStream.format("rocketpy").options(**options).load().select("body")
        sinks = stream.writeStream.format("rocketpy"), stream.writeStream.foreachBatch(_collect)
        for number, sink in enumerate(sinks):
            query = sink.options(**options, checkpointLocation=f"{folder}/{number}")
            assert query.trigger(availableNow=True).start().awaitTermination(300)
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
    # The JVM ends with its input and then writes the archive.
    java.stdin.close()
    java.wait(300)


if __name__ == "__main__":
    main()
