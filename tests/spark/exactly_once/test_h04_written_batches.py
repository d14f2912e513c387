"""H04: an exactly-once query with the endpoints of a pair writes on after a promotion."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from rocketpy_broker.client import brokers
from tests.broker.replication.promotion.test_h04_promotion import bodies, status, until
from tests.support.time_limits import WAIT_SECONDS_MAX

TOPIC = "T"


def is_connected(slave: LocalBroker) -> bool:
    master = status(slave)["master"]
    return isinstance(master, dict) and bool(master["connected"])


def test_h04_a_query_writes_each_row_once_over_a_promotion(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    given: list[bytes] = []

    def add(count: int) -> None:
        rows = [f"{len(given) + number}" for number in range(count)]
        given.extend(each.encode() for each in rows)
        unfinished = tmp_path / "unfinished"
        unfinished.write_text("\n".join(rows))
        unfinished.rename(files / f"{len(given)}.txt")

    with (
        LocalBroker(
            tmp_path / "a", broker_role="SYNC_MASTER", ha_port=0, in_sync_replicas=2
        ) as master,
        LocalBroker(tmp_path / "b", broker_role="SLAVE", master=master.remoting_endpoint) as slave,
    ):
        # The slave must follow its master first.
        until(lambda: is_connected(slave))
        master.create_topic(TOPIC, queues=2)
        frame = spark.readStream.text(str(files)).selectExpr("value AS body")
        options = {
            "endpoints": f"{master.endpoint},{slave.endpoint}",
            "topic": TOPIC,
            "checkpointLocation": str(tmp_path / "checkpoint"),
        }
        query = frame.writeStream.format("rocketpy").options(**options).start()
        try:
            add(200)
            until(lambda: sorted(bodies(slave, TOPIC)) == sorted(given))
            master.kill()
            with slave._connection() as connection:
                brokers.promote(connection, role="ASYNC_MASTER", force=True)
            add(300)
            until(lambda: len(bodies(slave, TOPIC)) >= len(given))
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
        assert query.awaitTermination(WAIT_SECONDS_MAX)
        assert sorted(bodies(slave, TOPIC)) == sorted(given)
