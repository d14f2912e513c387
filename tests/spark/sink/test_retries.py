"""Retries: failed rows are sent back, redelivered, and dead letters at last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_rocketpy import send_back
from pyspark_rocketpy.errors import ColumnError, OptionError
from pyspark_rocketpy.transport.write_values import SentBack
from rocketpy_broker import LocalBroker
from tests.spark.conftest import Collected, Topic

GROUP = "odd-ones"


class QuickBroker(LocalBroker):
    """A broker with one second for each delay level."""

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "message_delay_level": "1s 1s 1s 1s 1s"}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """Yields a broker with short delays."""
    folder: Path = tmp_path_factory.mktemp("retries")
    with QuickBroker(folder, flush="ASYNC_FLUSH") as broker:
        yield broker


def sender(topic: Topic, group: str = GROUP) -> Callable[..., SentBack]:
    def send(frame: DataFrame, **options: object) -> SentBack:
        return send_back(
            frame,
            endpoints=topic.broker.endpoint,
            **{"consumerGroup": group, **options},  # type: ignore[arg-type]
        )

    return send


def test_k06_odd_rows_are_sent_back_and_read_again_until_they_are_dead_letters(
    new_topic: Callable[..., Topic], quick_broker: LocalBroker, tmp_path: Path
) -> None:
    """Runs a query that always fails on odd rows; it allows at most two failures."""
    topic = new_topic(broker=quick_broker)
    topic.send(*"012345")
    seen: dict[int, list[tuple[str, str, str]]] = {}
    sent = []

    def handle(frame: DataFrame, _batch_id: int) -> None:
        frame.persist()
        body = f.col("body").cast("string")
        for row in frame.select(body, "topic", "reconsumeTimes", "properties").collect():
            origin = row.properties.get("RETRY_TOPIC", row.topic)
            seen.setdefault(row.reconsumeTimes, []).append((row.body, row.topic, origin))
        odd = frame.where(body.cast("int") % 2 == 1)
        sent.append(sender(topic, "g1")(odd, maxReconsumeTimes=2))
        frame.unpersist()

    frame = topic.stream(
        columns="body,topic,reconsumeTimes,properties,commitLogOffset",
        consumerGroup="g1",
        includeRetryTopic="true",
        startingOffsets="earliest",
        pollTimeout="5s",
    )
    writer = frame.writeStream.foreachBatch(handle)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        while sum((each.dead_letters for each in sent), 0) < 3:
            assert not query.awaitTermination(1), query.exception()
    finally:
        query.stop()
    assert sorted(seen[0]) == [(body, topic.name, topic.name) for body in "012345"]
    for times in (1, 2):
        assert sorted(seen[times]) == [(body, "%RETRY%g1", topic.name) for body in "135"]
    assert max(seen) == 2
    assert sum((each.retries for each in sent), 0) == 6
    dead = quick_broker.messages("%DLQ%g1")
    assert sorted(message.text for message in dead) == ["1", "3", "5"]


def test_k06_a_batch_is_sent_back_by_its_rows_with_levels_of_a_column(topic: Topic) -> None:
    topic.send(*"abcdef")
    frame = topic.read().withColumn("level", f.expr("if(cast(body as string) = 'a', -1, 4)"))
    group = f"g-{topic.name}"
    assert sender(topic, group)(frame, delayLevel="level") == SentBack(5, 1, 0)
    assert [each.text for each in topic.broker.messages(f"%DLQ%{group}")] == ["a"]


@pytest.mark.parametrize("left_out", ["commitLogOffset", "offsetMsgId"])
def test_k06_one_of_the_two_places_is_enough(topic: Topic, left_out: str) -> None:
    topic.send("a", "b")
    group = f"g-{topic.name}"
    sent = sender(topic, group)(topic.read(columns="*").drop(left_out), delayLevel=-1)
    assert (sent.retries, sent.dead_letters) == (0, 2)
    # Dead letters can be sent back, too.
    again = topic.read(topic=f"%DLQ%{group}")
    assert sender(topic, group)(again, maxReconsumeTimes=9).retries == 2


def test_k06_no_rows_are_none(topic: Topic) -> None:
    topic.send("a")
    assert sender(topic)(topic.read().where("false")) == SentBack(0, 0, 0)


def test_k06_many_rows_take_several_calls(topic: Topic) -> None:
    topic.write(topic.spark.range(2_500).selectExpr("cast(id as string) body"))
    group = f"g-{topic.name}"
    assert sender(topic, group)(topic.read(), delayLevel=-1).dead_letters == 2_500
    found = {each.text for each in topic.broker.messages(f"%DLQ%{group}")}
    assert found == {str(number) for number in range(2_500)}


MISSING = {
    "column 'topic' is missing": ["topic"],
    "columns 'commitLogOffset' and 'offsetMsgId' are missing": ["commitLogOffset", "offsetMsgId"],
}


@pytest.mark.parametrize("said", MISSING)
def test_k06_a_missing_column_is_named(topic: Topic, said: str) -> None:
    with pytest.raises(ColumnError, match=said):
        sender(topic)(topic.read().drop(*MISSING[said]))


OPTIONS: dict[str, dict[str, object]] = {
    "option consumerGroup is 'a b'": {"consumerGroup": "a b"},
    "option consumerGroup is missing": {"consumerGroup": None},
    "option delayLevel is 19; accepted: -1 to 18": {"delayLevel": 19},
    "option delayLevel is -2; accepted": {"delayLevel": -2},
    "option maxReconsumeTimes is '-1'; accepted: 0 to": {"maxReconsumeTimes": -1},
    "unknown option retries": {"retries": 3},
    "option retryTimesMax is 'x'": {"retryTimesMax": "x"},
}


@pytest.mark.parametrize("said", OPTIONS)
def test_k06_a_wrong_option_is_named_with_its_value(topic: Topic, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sender(topic)(topic.read(), **OPTIONS[said])


def test_k06_a_level_column_must_be_there_and_of_whole_numbers(topic: Topic) -> None:
    with pytest.raises(ColumnError, match="option delayLevel is 'level', but no column"):
        sender(topic)(topic.read(), delayLevel="level")
    with pytest.raises(ColumnError, match="column 'tags', which option delayLevel names"):
        sender(topic)(topic.read(), delayLevel="tags")


def test_k06_a_stream_is_refused(topic: Topic) -> None:
    with pytest.raises(OptionError, match="call it in foreachBatch"):
        sender(topic)(topic.stream())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"commitLogOffset": "cast(null as long)"}, "column 'commitLogOffset' is null in row"),
        ({"level": "77"}, "delayLevel is 77; accepted: -1 to 18"),
        ({"commitLogOffset": "3"}, "the message at log offset 3 was not sent back"),
        ({"topic": "'other'"}, "not of 'other'"),
    ],
)
def test_k06_a_row_that_cannot_be_sent_back_fails_with_its_value(
    topic: Topic, change: dict[str, str], said: str
) -> None:
    topic.send("a")
    changes = {name: f.expr(text) for name, text in change.items()}
    frame = topic.read().withColumn("level", f.lit(1)).withColumns(changes)
    with pytest.raises(PythonException, match=said):
        sender(topic, f"g-{topic.name}")(frame, delayLevel="level")


def test_k06_with_retries_needs_the_group(topic: Topic) -> None:
    with pytest.raises(
        Exception, match="option includeRetryTopic is true, but consumerGroup is not set"
    ):
        topic.read(includeRetryTopic="true")


def test_k06_with_retries_reads_a_retry_topic_that_comes_later(
    topic: Topic, collected: Collected
) -> None:
    group = f"g-{topic.name}"
    topic.send("a")
    frame = topic.stream(
        consumerGroup=group,
        includeRetryTopic="true",
        startingOffsets="earliest",
        commitOffsets="false",
    )
    collected.run(frame)
    topic.broker.create_topic(f"%RETRY%{group}", queues=1)
    topic.broker.send(f"%RETRY%{group}", ["again"])
    topic.send("b")
    collected.run(frame)
    assert sorted(collected.bodies()) == ["a", "again", "b"]


def test_k06_with_retries_goes_with_a_pattern_and_reads_no_other_groups(
    topic: Topic, spark: SparkSession
) -> None:
    broker = topic.broker
    mine, others = f"{topic.name}-mine", f"{topic.name}-others"
    for group in (mine, others):
        broker.create_topic(f"%RETRY%{group}", queues=1)
        broker.send(f"%RETRY%{group}", [f"of {group}"])
    topic.send("a")
    options = {"topic": None, "topicPattern": f"{topic.name}|.*RETRY.*"}
    assert topic.bodies(**options, consumerGroup=mine, includeRetryTopic="true") == [
        "a",
        f"of {mine}",
    ]
