"""Messages between RocketMQ's SDKs and Spark."""

from __future__ import annotations

from datetime import datetime, timezone

from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from tests.interop.apache_v2.clients import Clients
from tests.interop.apache_v2.crossings.crossings import (
    KINDS,
    TOPIC,
    broker,
    check_received,
    deliver_at,
    pass_delivery_time,
    sdk,
    send_by_sdk,
)
from tests.spark.conftest import spark

__all__ = ["broker", "deliver_at", "sdk", "spark"]

SCHEMA = (
    "body string, tags string, keys array<string>, properties map<string,string>, "
    "messageGroup string, deliverAt timestamp"
)


def test_spark_reads_what_the_sdk_has_sent(
    broker: LocalBroker, sdk: Clients, spark: SparkSession, deliver_at: int
) -> None:
    ids = send_by_sdk(sdk, broker, deliver_at)
    options = {"endpoints": broker.endpoint, "topic": TOPIC, "columns": "*"}
    rows = spark.read.format("rocketpy").options(**options).load().collect()
    found = {bytes(row.body).decode(): row for row in rows}
    assert {body: row.msgId for body, row in found.items()} == ids
    for row in found.values():
        assert (row.tags, sorted(row["keys"])) == ("a", ["k1", "k2"])
        assert row.properties["color"] == "red"
    assert [found[kind].messageGroup for kind in KINDS] == [None, "g", None]
    times = [found[kind].properties.get("TIMER_DELIVER_MS") for kind in KINDS]
    assert times == [None, None, str(deliver_at)]


def test_the_sdk_receives_what_spark_has_written(
    broker: LocalBroker, sdk: Clients, spark: SparkSession, deliver_at: int
) -> None:
    time = datetime.fromtimestamp(deliver_at // 1_000, timezone.utc)
    more = [(None, None), ("g", None), (None, time)]
    rows = [
        (kind, "a", ["k1", "k2"], {"color": "red"}, *each)
        for kind, each in zip(KINDS, more, strict=True)
    ]
    options = {"endpoints": broker.endpoint, "topic": TOPIC}
    frame = spark.createDataFrame(rows, SCHEMA)
    frame.write.format("rocketpy").options(**options).mode("append").save()
    check_received(sdk, pass_delivery_time(broker), deliver_at)
