"""The source through real Spark: first and last offsets, rows read, and restarts."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable

import grpc
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)

from rocketpy_broker import LocalBroker
from rocketpy_proto.record import COLUMN_TYPES
from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc
from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

EARLIEST = {"startingOffsets": "earliest"}


def lag(broker: LocalBroker, topic: str, group: str) -> int:
    """Returns a group's lag, as every RocketMQ tool sees it."""
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = broker_pb2.QueryOffsetsRequest(topics=[topic], consumer_group=group)
        response = broker_pb2_grpc.BrokerStub(channel).QueryOffsets(
            request, timeout=WAIT_SECONDS_MAX
        )
    return sum(queue.max_offset - queue.committed_offset for queue in response.topics[0].queues)


def commit(broker: LocalBroker, topic: str, group: str, offsets: dict[int, int]) -> None:
    """Commits a group's offsets as another tool would."""
    entries = [
        broker_pb2.CommittedOffset(topic=topic, queue_id=queue_id, offset=offset)
        for queue_id, offset in offsets.items()
    ]
    with grpc.insecure_channel(broker.endpoint) as channel:
        request = broker_pb2.CommitOffsetsRequest(consumer_group=group, offsets=entries)
        broker_pb2_grpc.BrokerStub(channel).CommitOffsets(request, timeout=WAIT_SECONDS_MAX)


def test_all_columns_come_back_as_they_were_sent(topic: Topic) -> None:
    row = (b"\x00body", "TagA", ["k1", "k2"], {"colour": "blue", "größe": "42 €"}, "group-7")
    schema = (
        "body binary, tags string, keys array<string>, properties map<string,string>, "
        "messageGroup string"
    )
    topic.write(topic.spark.createDataFrame([row], schema), delivery="at-least-once")
    [read] = topic.read(columns="*").collect()
    assert list(read.asDict()) == [*COLUMN_TYPES, "brokerName"]
    assert read.brokerName == "broker-a"
    assert (bytes(read.body), read.tags, read.keys, read.messageGroup) == (
        row[0],
        row[1],
        row[2],
        row[4],
    )
    assert read.properties["größe"] == "42 €"
    assert read.properties["UNIQ_KEY"] == read.msgId
    assert (read.topic, read.queueOffset, read.reconsumeTimes, read.sysFlag) == (
        topic.name,
        0,
        0,
        0,
    )
    assert len(read.offsetMsgId) == 32
    assert read.storeHost == topic.broker.remoting_endpoint
    assert dt.timedelta(0) <= read.storeTimestamp - read.bornTimestamp < dt.timedelta(minutes=1)


def test_the_default_columns_leave_out_what_few_queries_need(topic: Topic) -> None:
    topic.send("a")
    default = topic.read().columns
    assert list(default) == [
        *("topic", "queueId", "queueOffset", "body", "tags", "keys", "msgId"),
        *("bornTimestamp", "storeTimestamp", "reconsumeTimes", "commitLogOffset"),
        *("messageGroup", "bodyError", "brokerName"),
    ]
    assert topic.stream().columns == default
    # A schema that was stored when all columns were the default.
    whole = topic.read(columns="*").schema
    reader = topic.spark.read.format("rocketpy").schema(whole).options(**topic.options())
    assert reader.load().select("properties", "bornHost").count() == 1


def test_all_columns_stand_alone(topic: Topic) -> None:
    with pytest.raises(AnalysisException, match="'\\*' stands for all columns; name it alone"):
        topic.read(columns="body,*")


def test_a_batch_without_messages_is_empty(topic: Topic) -> None:
    assert topic.read().count() == 0


def test_empty_bodies_and_large_ones_survive(topic: Topic) -> None:
    bodies = [b"", b"x" * (4 << 20), b"y"]
    frame = topic.spark.createDataFrame([(body,) for body in bodies], "body binary")
    topic.write(frame.coalesce(1))
    assert sorted(bytes(row.body) for row in topic.read(columns="body").collect()) == sorted(bodies)


def test_k05_a_batch_reads_between_the_given_offsets(topic: Topic) -> None:
    topic.send("a0", "a1", "a2", queue_id=0)
    topic.send("b0", "b1", queue_id=1)
    starting = json.dumps({topic.name: {"0": 1, "1": -2}})
    ending = json.dumps({topic.name: {"0": 2, "1": -1}})
    assert topic.bodies(startingOffsets=starting, endingOffsets=ending) == ["a1", "b0", "b1"]
    assert topic.bodies(startingOffsets="latest") == []


def test_k05_committed_offsets_are_where_a_new_query_begins(topic: Topic) -> None:
    topic.send("a0", "a1", "a2", queue_id=0)
    topic.send("b0", queue_id=1)
    commit(topic.broker, topic.name, "g", {0: 2})
    read = topic.bodies(startingOffsets="committed", consumerGroup="g")
    assert read == ["a2", "b0"]


def test_columns_are_read_in_the_order_asked_for(topic: Topic) -> None:
    topic.send("x")
    frame = topic.read(columns="queueOffset,body")
    assert frame.columns == ["queueOffset", "body"]
    assert [tuple(row) for row in frame.collect()] == [(0, b"x")]


def test_a_narrower_user_schema_is_column_pruning(topic: Topic) -> None:
    topic.send("x")
    reader = topic.spark.read.format("rocketpy").options(**topic.options())
    frame = reader.schema("tags string, body binary").load()
    assert [tuple(row) for row in frame.collect()] == [(None, b"x")]


def test_several_topics_are_read_together(new_topic: Callable[..., Topic]) -> None:
    first, second = new_topic(), new_topic()
    first.send("one")
    second.send("two")
    frame = first.read(topic=None, topics=f"{first.name},{second.name}", columns="topic,body")
    assert {tuple(row) for row in frame.collect()} == {(first.name, b"one"), (second.name, b"two")}


def test_min_partitions_splits_queues_and_loses_nothing(topic: Topic) -> None:
    topic.write(topic.spark.range(10_000).selectExpr("cast(id as string) as body"))
    frame = topic.read(minPartitions=7, columns="body")
    assert frame.rdd.getNumPartitions() >= 7
    assert sorted(int(row.body) for row in frame.collect()) == list(range(10_000))


def test_small_queues_share_a_task(new_topic: Callable[..., Topic]) -> None:
    topic = new_topic(queues=8)
    for queue_id in range(8):
        topic.send("x", queue_id=queue_id)
    frame = topic.read(columns="queueId")
    assert frame.rdd.getNumPartitions() == 1
    assert sorted(row.queueId for row in frame.collect()) == list(range(8))


def test_k07_the_order_of_a_queue_is_kept(topic: Topic) -> None:
    frame = topic.spark.range(0, 30_000, 1, 1).selectExpr("cast(id as string) as body")
    topic.write(frame.withColumn("queueId", F.lit(1)), batchBytesMax=50_000)
    rows = topic.read(columns="queueOffset,body", fetchBytesMax=100_000).collect()
    assert [(row.queueOffset, int(row.body)) for row in rows] == [(n, n) for n in range(30_000)]


def test_k04_max_offsets_per_trigger_bounds_each_batch(topic: Topic, collected: Collected) -> None:
    topic.send(*(f"a{n}" for n in range(20)), queue_id=0)
    topic.send(*(f"b{n}" for n in range(10)), queue_id=1)
    collected.run(topic.stream(maxOffsetsPerTrigger=7, columns="body", **EARLIEST))
    sizes = [len(rows) for _, rows in sorted(collected.batches.items())]
    assert max(sizes) <= 7
    assert sum(sizes) == 30
    assert len(set(collected.bodies())) == 30


def test_available_now_ends_at_the_offsets_of_its_start(topic: Topic, collected: Collected) -> None:
    topic.send("a", "b", "c")
    sent: list[int] = []

    def collect_and_send(frame: object, batch_id: int) -> None:
        collected._collect(frame, batch_id)  # type: ignore[arg-type]
        if len(sent) < 3:
            sent.append(batch_id)
            topic.send("late")

    frame = topic.stream(maxOffsetsPerTrigger=1, columns="body", **EARLIEST)
    query = frame.writeStream.foreachBatch(collect_and_send).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    assert collected.bodies() == ["a", "b", "c"]


def test_k01_a_restarted_query_loses_nothing_and_reads_nothing_twice(
    topic: Topic, collected: Collected
) -> None:
    frame = topic.stream(columns="body", maxOffsetsPerTrigger=2, **EARLIEST)
    topic.send("a", "b", "c")
    collected.run(frame)
    topic.send("d", queue_id=1)
    topic.send("e")
    collected.run(frame)
    collected.run(frame)
    assert sorted(collected.bodies()) == ["a", "b", "c", "d", "e"]


def test_k05_a_stream_begins_at_the_end_unless_told_otherwise(
    topic: Topic, collected: Collected
) -> None:
    frame = topic.stream(columns="body")
    topic.send("before")
    collected.run(frame)
    topic.send("after")
    collected.run(frame)
    assert collected.bodies() == ["after"]


def test_k05_what_arrives_before_the_first_batch_is_committed_is_not_lost(
    topic: Topic, collected: Collected
) -> None:
    frame = topic.stream(columns="body")

    def fail(_frame: object, _batch_id: int) -> None:
        raise RuntimeError("the first batch fails")

    topic.send("before")
    checkpoint = collected._checkpoint
    writer = frame.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint)
    query = writer.start()
    with pytest.raises(PySparkException, match="first batch fails"):
        query.awaitTermination(WAIT_SECONDS_MAX)
    topic.send("between")
    collected.run(frame)
    topic.send("after")
    collected.run(frame)
    assert collected.bodies() == ["between", "after"]


def test_the_lag_of_a_finished_query_is_zero(topic: Topic, collected: Collected) -> None:
    topic.send("a", "b", queue_id=0)
    topic.send("c", queue_id=1)
    collected.run(topic.stream(consumerGroup="watch", **EARLIEST))
    assert lag(topic.broker, topic.name, "watch") == 0


def test_the_lag_of_an_idle_query_is_zero_and_its_progress_says_so(
    topic: Topic, collected: Collected
) -> None:
    query = collected.start(
        topic.stream(consumerGroup="idle", **EARLIEST), processingTime="0 seconds"
    )
    try:
        topic.send("a", "b")
        query.processAllAvailable()
        # An idle trigger runs after the last batch once there is nothing more to process.
        query.processAllAvailable()
        assert lag(topic.broker, topic.name, "idle") == 0
        progress = json.loads(query.recentProgress[-1].json)
        assert progress["sources"][0]["latestOffset"]["lag"] == {topic.name: {"0": 0, "1": 0}}
    finally:
        query.stop()


def test_commit_offsets_false_reports_nothing(topic: Topic, collected: Collected) -> None:
    topic.send("a")
    collected.run(topic.stream(consumerGroup="quiet", commitOffsets="false", **EARLIEST))
    assert lag(topic.broker, topic.name, "quiet") == 1 + 2  # committed is -1 in both queues


def test_new_queues_are_read_from_their_begin(topic: Topic, collected: Collected) -> None:
    frame = topic.stream(columns="body", **EARLIEST)
    topic.send("a")
    collected.run(frame)
    config = admin_pb2.TopicConfig(topic=topic.name, read_queue_nums=3, write_queue_nums=3, perm=6)
    with grpc.insecure_channel(topic.broker.endpoint) as channel:
        admin_pb2_grpc.AdminStub(channel).UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))
    topic.send("b", "c", queue_id=2)
    collected.run(frame)
    assert collected.bodies() == ["a", "b", "c"]


# Messages of a recreated topic: fewer than were read of the old one, and more.
NEW = [["new"], [f"new {number}" for number in range(5)]]


@pytest.mark.parametrize("new", NEW)
def test_s5_a_topic_made_anew_fails_the_query_and_names_what_is_lost(
    topic: Topic, collected: Collected, new: list[str]
) -> None:
    frame = topic.stream(columns="body", **EARLIEST)
    topic.send("a", "b", "c")
    collected.run(frame)
    topic.broker.delete_topic(topic.name)
    topic.broker.create_topic(topic.name, queues=2)
    topic.send(*new)
    with pytest.raises(PySparkException) as caught:
        collected.run(frame)
    text = str(caught.value)
    lost = f"offsets from 3 on of queue 0 of topic '{topic.name}'"
    for part in ("ROCKETPY_DATA_LOSS", lost, "failOnDataLoss"):
        assert part in text


@pytest.mark.parametrize("new", NEW)
def test_s5_with_fail_on_data_loss_false_the_query_goes_on(
    topic: Topic, collected: Collected, new: list[str]
) -> None:
    frame = topic.stream(columns="body", failOnDataLoss="false", **EARLIEST)
    topic.send("a", "b", "c")
    collected.run(frame)
    topic.broker.delete_topic(topic.name)
    topic.broker.create_topic(topic.name, queues=2)
    topic.send(*new)
    collected.run(frame)
    assert collected.bodies() == ["a", "b", "c", *new]


def test_s5_a_removed_topic_fails_the_query(topic: Topic, collected: Collected) -> None:
    frame = topic.stream(columns="body", **EARLIEST)
    topic.send("a")
    collected.run(frame)
    topic.broker.delete_topic(topic.name)
    with pytest.raises(PySparkException, match=topic.name):
        collected.run(frame)


def test_k03_a_query_goes_on_after_the_broker_was_killed_and_restarted(
    spark: SparkSession, collected: Collected, tmp_path: object
) -> None:
    with LocalBroker(f"{tmp_path}/store") as broker:
        broker.create_topic("T", queues=2)
        topic = Topic("T", spark, broker)
        topic.send("a")
        query = collected.start(
            topic.stream(columns="body", **EARLIEST), processingTime="0 seconds"
        )
        try:
            query.processAllAvailable()
            broker.kill()
            broker.start()
            topic.send("b")
            query.processAllAvailable()
        finally:
            query.stop()
    assert collected.bodies() == ["a", "b"]
