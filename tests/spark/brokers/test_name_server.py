"""Source and sink by the embedded broker's name server, as with a cluster of RocketMQ."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rocketpy_broker import LocalBroker

COUNT = 1_000


def options(broker: LocalBroker, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": broker.name_server, "topic": topic, **more}


def numbers(spark: SparkSession, begin: int, count: int) -> DataFrame:
    return spark.range(begin, begin + count).selectExpr("cast(id as string) as body")


def read(spark: SparkSession, broker: LocalBroker, topic: str, **more: str) -> list[int]:
    frame = spark.read.format("rocketpy").options(**options(broker, topic, **more)).load()
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_a_batch_is_written_and_read(spark: SparkSession, rocketpy_broker: LocalBroker) -> None:
    rocketpy_broker.create_topic("by-name-server", queues=3)
    given = options(rocketpy_broker, "by-name-server")
    frame = numbers(spark, 0, COUNT).selectExpr("body", "if(body % 2 = 0, 'even', 'odd') as tags")
    frame.write.format("rocketpy").options(**given).mode("append").save()
    assert read(spark, rocketpy_broker, "by-name-server") == [*range(COUNT)]
    odd = read(spark, rocketpy_broker, "by-name-server", filter="odd")
    assert odd == [*range(1, COUNT, 2)]
    assert len(rocketpy_broker.messages("by-name-server")) == COUNT


def test_a_stream_is_written_effectively_once_and_read(
    spark: SparkSession, rocketpy_broker: LocalBroker, tmp_path: Path
) -> None:
    for name, queues in (("from", 2), ("to", 2), ("control", 1)):
        rocketpy_broker.create_topic(name, queues=queues)
    for begin in (0, COUNT):
        numbers(spark, begin, COUNT).write.format("rocketpy").options(
            **options(rocketpy_broker, "from")
        ).mode("append").save()
        query = (
            spark.readStream.format("rocketpy")
            .options(**options(rocketpy_broker, "from", startingOffsets="earliest"))
            .load()
            .select("body")
            .writeStream.format("rocketpy")
            .options(
                **options(
                    rocketpy_broker, "to", delivery="effectively-once", controlTopic="control"
                )
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert read(spark, rocketpy_broker, "to") == [*range(begin + COUNT)]


def test_a_restarted_broker_is_found_again(
    spark: SparkSession, rocketpy_broker: LocalBroker
) -> None:
    rocketpy_broker.create_topic("restarted", queues=1)
    frame, given = numbers(spark, 0, 10), options(rocketpy_broker, "restarted")
    frame.write.format("rocketpy").options(**given).mode("append").save()
    rocketpy_broker.kill()
    rocketpy_broker.start()
    frame.write.format("rocketpy").options(**given).mode("append").save()
    assert read(spark, rocketpy_broker, "restarted") == sorted([*range(10)] * 2)
