"""A busy broker: it delays a query, ends none, and leaves reused workers intact."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from tests.support.spark.holding_proxy import GET_BROKER_INFO, QUERY_OFFSETS, HoldingProxy

TIMES = 3


def test_a_save_and_a_stream_go_on_when_a_busy_broker_is_no_more(
    spark: SparkSession, rocketpy_broker: LocalBroker, tmp_path: Path
) -> None:
    rocketpy_broker.create_topic("busy", queues=2)
    with HoldingProxy(rocketpy_broker.endpoint) as proxy:
        options = {"endpoints": proxy.endpoint, "topic": "busy", "retryBackoff": "1ms"}
        rows = spark.createDataFrame([(f"{number}",) for number in range(4)], "body string")
        proxy.busy[GET_BROKER_INFO] = TIMES
        # The second one is written by the same workers.
        for _ in range(2):
            rows.write.format("rocketpy").options(**options).mode("append").save()
        assert proxy.refused[GET_BROKER_INFO] == TIMES
        reader = spark.readStream.format("rocketpy").options(**options, startingOffsets="earliest")
        writer = reader.load().selectExpr("cast(body as string)").writeStream.format("memory")
        query = writer.queryName("busy").option("checkpointLocation", str(tmp_path)).start()
        try:
            query.processAllAvailable()
            proxy.busy[QUERY_OFFSETS] = TIMES
            rocketpy_broker.send("busy", "later")
            query.processAllAvailable()
            assert query.exception() is None
        finally:
            query.stop()
        assert proxy.refused[QUERY_OFFSETS] == TIMES
    found = sorted(row.body for row in spark.table("busy").collect())
    assert found == [*"00112233", "later"]
