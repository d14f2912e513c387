"""The source through real Spark: topics by pattern, times, limits, waiting, allocation."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark users know)
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_proto.rocketpy.v1 import admin_pb2, admin_pb2_grpc
from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

EARLIEST = {"startingOffsets": "earliest"}


@contextmanager
def running(collected: Collected, frame: DataFrame, **trigger: Any) -> Iterator[StreamingQuery]:
    """Yields a running query that is stopped at the end."""
    query = collected.start(frame, **(trigger or {"processingTime": "0 seconds"}))
    try:
        yield query
    finally:
        query.stop()


def add_queue(topic: Topic, queues: int) -> None:
    """Sets the topic's number of queues."""
    config = admin_pb2.TopicConfig(
        topic=topic.name, read_queue_nums=queues, write_queue_nums=queues, perm=6
    )
    with grpc.insecure_channel(topic.broker.endpoint) as channel:
        admin_pb2_grpc.AdminStub(channel).UpdateTopic(admin_pb2.UpdateTopicRequest(config=config))


def stored_ms(topic: Topic) -> dict[str, int]:
    """Returns each message's store time, by its body."""
    rows = topic.read().select(F.expr("string(body)"), F.unix_millis("storeTimestamp")).collect()
    return dict(tuple(row) for row in rows)


def error_of(action: Callable[[], object]) -> str:
    """Returns the text of the error that `action` ends in."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_k05_a_batch_reads_what_was_stored_between_two_times(topic: Topic) -> None:
    for body, queue_id in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
        topic.send(body, queue_id=queue_id)
    ms = stored_ms(topic)
    assert topic.bodies(startingTimestamp=ms["b"], endingTimestamp=ms["d"]) == ["b", "c"]
    by_queue = json.dumps({topic.name: {"0": ms["c"], "1": ms["d"]}})
    assert topic.bodies(startingOffsetsByTimestamp=by_queue) == ["c", "d"]
    assert topic.bodies(endingOffsetsByTimestamp=by_queue) == ["a", "b"]
    assert topic.bodies(endingTimestamp=ms["d"] + 1) == ["a", "b", "c", "d"]


def test_k05_a_stream_begins_at_a_time_and_at_the_end_where_nothing_is_so_young(
    topic: Topic, collected: Collected
) -> None:
    topic.send("old", queue_id=1)
    topic.send("a", queue_id=0)
    topic.send("b", queue_id=0)
    ms = stored_ms(topic)
    begin = {"startingTimestamp": ms["b"], "startingOffsetsByTimestampStrategy": "latest"}
    frame = topic.stream(columns="body", **begin)
    collected.run(frame)
    topic.send("new", queue_id=1)
    collected.run(frame)
    assert collected.bodies() == ["b", "new"]


def test_k05_a_time_without_a_message_is_told(topic: Topic) -> None:
    topic.send("a", queue_id=0)
    text = error_of(topic.read(startingTimestamp=1).collect)
    for part in ("ROCKETPY_OFFSET", "queue 1", topic.name, "startingOffsetsByTimestampStrategy"):
        assert part in text


def test_k05_a_batch_that_ends_before_it_begins_is_told(topic: Topic) -> None:
    topic.send("a", "b", queue_id=1)
    starting = json.dumps({topic.name: {"0": 0, "1": 2}})
    ending = json.dumps({topic.name: {"0": 0, "1": 1}})
    text = error_of(topic.read(startingOffsets=starting, endingOffsets=ending).collect)
    for part in ("ROCKETPY_OFFSET", "queue 1", topic.name, "from offset 2", "to 1"):
        assert part in text


def test_k05_a_stream_refuses_an_ending_and_says_so(topic: Topic, collected: Collected) -> None:
    frame = topic.stream(endingOffsets="latest")
    text = error_of(lambda: collected.run(frame))
    assert "option endingOffsets ends a batch" in text


def test_topics_by_pattern_are_read_together_and_none_is_told(
    new_topic: Callable[..., Topic],
) -> None:
    first, second, other = new_topic(), new_topic(), new_topic()
    for one in (first, second, other):
        one.send(one.name)
    pattern = f"{first.name}|{second.name}"
    assert first.bodies(topic=None, topicPattern=pattern) == sorted([first.name, second.name])
    text = error_of(first.read(topic=None, topicPattern="no-such-.*").collect)
    assert "option topicPattern is 'no-such-.*'" in text


def test_new_topics_and_queues_are_read_while_a_query_by_pattern_runs(
    topic: Topic, collected: Collected
) -> None:
    pattern = f"{topic.name}(-.*)?"
    with running(collected, topic.stream(topic=None, topicPattern=pattern, **EARLIEST)) as query:
        topic.send("a")
        query.processAllAvailable()
        later = Topic(f"{topic.name}-later", topic.spark, topic.broker)
        topic.broker.create_topic(later.name, queues=1)
        later.send("b")
        query.processAllAvailable()
        add_queue(topic, 3)
        topic.send("c", queue_id=2)
        query.processAllAvailable()
    assert collected.bodies() == ["a", "b", "c"]


def test_available_now_leaves_topics_that_came_during_it_to_the_next_run(
    topic: Topic, collected: Collected
) -> None:
    pattern = {"topic": None, "topicPattern": f"{topic.name}(-.*)?", **EARLIEST}
    topic.send("a", "b")
    later = Topic(f"{topic.name}-later", topic.spark, topic.broker)

    def create(batch_id: int) -> None:
        if batch_id == 0:
            topic.broker.create_topic(later.name, queues=1)
            later.send("late")
            topic.send("c")

    collected.listeners.append(create)
    frame = topic.stream(maxOffsetsPerTrigger=1, **pattern)
    collected.run(frame)
    assert collected.bodies() == ["a", "b"]
    collected.run(frame)
    assert sorted(collected.bodies()) == ["a", "b", "c", "late"]


def test_s5_a_topic_removed_during_a_query_by_pattern_is_passed_over_if_allowed(
    topic: Topic, collected: Collected
) -> None:
    other = Topic(f"{topic.name}-other", topic.spark, topic.broker)
    topic.broker.create_topic(other.name, queues=1)
    pattern = {"topic": None, "topicPattern": f"{topic.name}(-.*)?", **EARLIEST}
    topic.send("a")
    other.send("b")
    collected.run(topic.stream(**pattern))
    topic.broker.delete_topic(other.name)
    topic.send("c")
    text = error_of(lambda: collected.run(topic.stream(**pattern)))
    for part in (
        "ROCKETPY_DATA_LOSS",
        "offsets from 1 on of queue 0",
        other.name,
        "failOnDataLoss",
    ):
        assert part in text
    collected.run(topic.stream(failOnDataLoss="false", **pattern))
    topic.broker.create_topic(other.name, queues=1)
    other.send("d")
    collected.run(topic.stream(**pattern))
    assert sorted(collected.bodies()) == ["a", "b", "c", "d"]


def test_k04_max_bytes_per_trigger_bounds_each_batch(topic: Topic, collected: Collected) -> None:
    body = "x" * 1_000
    topic.send(*[body] * 12, queue_id=0)
    topic.send(*[body] * 6, queue_id=1)
    collected.run(topic.stream(maxBytesPerTrigger=6_000, columns="body", **EARLIEST))
    sizes = [len(rows) for _, rows in sorted(collected.batches.items())]
    assert max(sizes) <= 5
    assert sum(sizes) == 18


def test_k04_a_batch_waits_for_min_offsets(topic: Topic, collected: Collected) -> None:
    topic.send("a")
    enough = {"minOffsetsPerTrigger": 3, "maxTriggerDelay": "1h", "pollTimeout": "200ms"}
    frame = topic.stream(columns="body", **enough, **EARLIEST)
    with running(collected, frame) as query:
        query.processAllAvailable()
        assert collected.bodies() == ["a"]
        topic.send("b", "c")
        query.processAllAvailable()
        query.processAllAvailable()
        assert collected.bodies() == ["a"]
        topic.send("d", queue_id=1)
        query.processAllAvailable()
    assert sorted(collected.bodies()) == ["a", "b", "c", "d"]
    topic.send("e")
    collected.run(frame)
    assert "e" in collected.bodies()


def test_k05_a_message_ends_the_waiting_of_an_idle_query(
    topic: Topic, collected: Collected
) -> None:
    arrived = threading.Event()

    def note(_batch_id: int) -> None:
        if collected.bodies():
            arrived.set()

    collected.listeners.append(note)
    with running(collected, topic.stream(pollTimeout="1h", **EARLIEST)):
        topic.send("a")
        assert arrived.wait(WAIT_SECONDS_MAX)
        arrived.clear()
        topic.send("b")
        assert arrived.wait(WAIT_SECONDS_MAX)
    assert collected.bodies() == ["a", "b"]


def queues_by_task(frame: DataFrame) -> list[list[int]]:
    """Returns the queues that each task has read."""
    rows = frame.select(F.spark_partition_id().alias("task"), "queueId").distinct().collect()
    tasks: dict[int, list[int]] = {}
    for row in sorted(rows):
        tasks.setdefault(row.task, []).append(row.queueId)
    return [tasks[task] for task in sorted(tasks)]


def test_k02_queues_go_to_tasks_as_allocated(new_topic: Callable[..., Topic]) -> None:
    topic = new_topic(queues=5)
    rows = [("x", queue_id) for queue_id in range(5)] * 4
    topic.write(topic.spark.createDataFrame(rows, "body string, queueId int"))
    circle = topic.read(allocation="circle", minPartitions=2)
    assert queues_by_task(circle) == [[0, 2, 4], [1, 3]]
    config = [[f"{topic.name}:{queue_id}" for queue_id in queues] for queues in ([4, 1], [0, 2, 3])]
    by_config = {"allocation": "config", "allocationConfig": json.dumps(config)}
    assert queues_by_task(topic.read(**by_config)) == [[1, 4], [0, 2, 3]]
    assert len(queues_by_task(topic.read(maxRecordsPerPartition=2, **by_config))) == 10
    config[0].pop()
    by_config["allocationConfig"] = json.dumps(config)
    assert "does not name queue 1" in error_of(topic.read(**by_config).collect)
    services = {"allocation": "machineRoom", "machineRooms": "r1"}
    assert "option machineRooms is 'r1'" in error_of(topic.read(**services).collect)
