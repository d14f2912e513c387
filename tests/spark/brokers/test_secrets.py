"""Secret keys of users are in no plan of Spark and in no checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame

from rocketpy_broker import BrokerUser, LocalBroker
from tests.spark.conftest import Topic

ADMIN = "a-secret-of-the-admin"
SECRETS = {"secretKey": "a-secret-of-the-user", "securityToken": "a-token-of-the-user"}


def plan_of(frame: DataFrame) -> str:
    """Returns the text of `explain(extended=True)`."""
    return str(frame._jdf.queryExecution().toString())


def test_n09_no_plan_and_no_checkpoint_has_a_secret(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    users = [
        BrokerUser("root", ADMIN, role="admin"),
        BrokerUser("worker", SECRETS["secretKey"], topics={"*": "PUB|SUB"}, groups={"*": "SUB"}),
    ]
    with LocalBroker(users=users) as broker:
        topic, copy = new_topic(broker=broker), new_topic(broker=broker)
        keys = {"accessKey": "worker", **SECRETS}
        spark = topic.spark
        topic.write(spark.createDataFrame([("a", 0)], "body string, queueId int"), **keys)
        frame = topic.read(**keys)
        assert [row.body for row in frame.select("body").collect()] == [b"a"]
        # Spark hides the options in the plan of the command, by their names.
        given = ", ".join(f"{name} '{value}'" for name, value in topic.options(**keys).items())
        spark.sql(f"CREATE TEMPORARY VIEW secrets USING rocketpy OPTIONS ({given})")
        query = (
            topic.stream(**keys, startingOffsets="earliest")
            .select("body")
            .writeStream.format("rocketpy")
            .options(**copy.options(**keys))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert copy.bodies(**keys) == ["a"]
        shown = [plan_of(frame), query._jsq.explainInternal(True), str(query.lastProgress)]
        # The event log has these texts, of the writes too.
        executions = spark._jsparkSession.sharedState().statusStore().executionsList()
        for number in range(executions.size()):
            shown += [executions.apply(number).physicalPlanDescription()]
        files = [each for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
        shown += [each.read_text(encoding="utf-8", errors="replace") for each in files]
    text = "\n".join(shown)
    for part in ("AppendData", "WriteToMicroBatchDataSource", "CreateTempViewUsing", topic.name):
        assert part in text
    for secret in SECRETS.values():
        assert secret not in text
