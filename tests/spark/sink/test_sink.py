"""The sink through real Spark: batch and streaming, where rows go, and in what order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX


def test_p01_every_row_is_stored_once_with_an_id_of_its_own(topic: Topic) -> None:
    topic.write(topic.spark.range(25_000).selectExpr("cast(id as string) as body"))
    rows = topic.read(columns="body,msgId").collect()
    assert sorted(int(row.body) for row in rows) == list(range(25_000))
    assert len({row.msgId for row in rows}) == 25_000


def test_p06_rows_spread_over_all_queues(new_topic: Callable[..., Topic]) -> None:
    topic = new_topic(queues=4)
    topic.write(topic.spark.range(20_000).selectExpr("cast(id as string) as body"))
    counts = {
        row.queueId: row["count"] for row in topic.read().groupBy("queueId").count().collect()
    }
    assert sorted(counts) == [0, 1, 2, 3]


def test_p06_rows_go_to_the_queue_and_topic_they_name(new_topic: Callable[..., Topic]) -> None:
    first, second = new_topic(), new_topic()
    rows = [
        ("a", first.name, 1),
        ("b", second.name, 0),
        ("c", None, 1),
        ("d", second.name, None),
    ]
    frame = first.spark.createDataFrame(rows, "body string, topic string, queueId int")
    first.write(frame)
    assert {(row.body, row.queueId) for row in first.read().collect()} == {(b"a", 1), (b"c", 1)}
    assert second.bodies() == ["b", "d"]


def test_messages_of_a_group_lie_in_one_queue_in_their_order(
    new_topic: Callable[..., Topic],
) -> None:
    topic = new_topic(queues=4)
    frame = topic.spark.range(0, 12_000, 1, 1).selectExpr(
        "cast(id as string) as body", "id % 7 as g"
    )
    topic.write(frame.select("body", F.concat(F.lit("group-"), "g").alias("messageGroup")))
    rows = topic.read(columns="queueId,queueOffset,body,messageGroup")
    for group in range(7):
        of_group = rows.where(F.col("messageGroup") == f"group-{group}").collect()
        assert len({row.queueId for row in of_group}) == 1
        of_group.sort(key=lambda row: row.queueOffset)
        assert [int(row.body) for row in of_group] == list(range(group, 12_000, 7))


def test_a_thread_of_ones_own_writes_as_the_readme_says(topic: Topic) -> None:
    rows = topic.spark.createDataFrame([("a",)], "body string")

    def save() -> None:
        topic.spark.createDataFrame([], "x int")
        topic.write(rows)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(save).result()
    assert topic.bodies() == ["a"]


def test_keys_may_be_one_string_or_many(topic: Topic) -> None:
    topic.write(topic.spark.createDataFrame([("x", "k1 k2")], "body string, keys string"))
    [row] = topic.read().collect()
    assert row["keys"] == ["k1", "k2"]


def test_a_dedicated_column_wins_over_a_property_of_its_name(topic: Topic) -> None:
    rows = [("x", "column", {"TAGS": "map", "other": "kept"}), ("y", None, {"TAGS": "map"})]
    schema = "body string, tags string, properties map<string,string>"
    topic.write(topic.spark.createDataFrame(rows, schema))
    read = {bytes(row.body): row for row in topic.read(columns="*").collect()}
    assert (read[b"x"].tags, read[b"x"].properties["other"]) == ("column", "kept")
    assert read[b"y"].tags == "map"


def test_large_var_types_are_accepted(topic: Topic) -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    topic.spark.conf.set(name, "true")
    try:
        rows = [("body", "t", ["k"], {"a": "b"})]
        schema = "body string, tags string, keys array<string>, properties map<string,string>"
        topic.write(topic.spark.createDataFrame(rows, schema))
    finally:
        topic.spark.conf.unset(name)
    [row] = topic.read(columns="*").collect()
    assert (bytes(row.body), row.tags, row["keys"]) == (b"body", "t", ["k"])
    assert row.properties["a"] == "b"


def test_a_stream_runs_from_topic_to_topic_and_resumes(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()

    def run() -> None:
        frame = source.stream(startingOffsets="earliest").selectExpr(
            "concat(cast(body as string), '!') as body", "tags"
        )
        writer = frame.writeStream.format("rocketpy").options(**target.options())
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS_MAX)

    source.send("a", "b")
    run()
    source.send("c")
    run()
    assert target.bodies() == ["a!", "b!", "c!"]


def test_foreach_batch_can_write_with_the_sink(
    new_topic: Callable[..., Topic], collected: Collected
) -> None:
    source, target = new_topic(), new_topic()
    source.send("a", "b")
    frame = source.stream(columns="body", startingOffsets="earliest")
    query = (
        frame.writeStream.foreachBatch(lambda batch, _id: target.write(batch))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    assert target.bodies() == ["a", "b"]


@pytest.mark.parametrize("body_bytes", [100, 5_000])
def test_blocks_stay_near_the_wanted_size(topic: Topic, body_bytes: int) -> None:
    frame = topic.spark.range(0, 2_000, 1, 1).selectExpr(f"lpad(id, {body_bytes}, 'x') as body")
    topic.write(frame, batchBytesMax=20_000)
    assert topic.read(columns="body").count() == 2_000
