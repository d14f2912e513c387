"""Bad input: one clear error that names the option or value and says what to do."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

# No server listens there.
CLOSED = "127.0.0.1:1"


def failure(work: Callable[[], object]) -> str:
    """Returns the text of the error that `work` ends in."""
    with pytest.raises(PySparkException) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "latest"}, ["startingofsets", "did you mean startingOffsets"]),
        ({"maxOffsetsPerTrigger": 0}, ["maxOffsetsPerTrigger", "'0'", "1 to"]),
        ({"maxOffsetsPerTrigger": "many"}, ["maxOffsetsPerTrigger", "'many'"]),
        ({"failOnDataLoss": "yes"}, ["failOnDataLoss", "'yes'", "true or false"]),
        ({"endpoints": None}, ["option endpoints is missing"]),
        ({"endpoints": "nohost"}, ["endpoints", "'nohost'", "host:port"]),
        ({"endpoints": "host:99999"}, ["endpoints", "'host:99999'"]),
        ({"topic": None}, ["options topic, topics and topicPattern"]),
        ({"topics": "a,b"}, ["options topic, topics", "exactly one"]),
        ({"topic": None, "topicPattern": "("}, ["topicPattern", "'('"]),
        ({"startingOffsets": "begin"}, ["startingOffsets", "'begin'", "earliest"]),
        ({"startingOffsets": '{"T":{"0":-3}}'}, ["startingOffsets", "-3 for queue 0"]),
        ({"startingOffsets": '{"T":'}, ["startingOffsets", "not JSON"]),
        ({"startingOffsets": '{"T":{"0":"x"}}'}, ["startingOffsets", "write it as"]),
        ({"endingOffsets": '{"T":{"0":-2}}'}, ["endingOffsets", "-2"]),
        ({"startingOffsetsByTimestamp": "1"}, ["startingOffsetsByTimestamp", "1767225600000"]),
        ({"allocation": "circular"}, ["allocation", "'circular'", "machineRoom"]),
        ({"allocation": "config"}, ["allocation config and allocationConfig go together"]),
        ({"minOffsetsPerTrigger": 2, "maxOffsetsPerTrigger": 1}, ["minOffsetsPerTrigger is 2"]),
        ({"maxTriggerDelay": "soon"}, ["maxTriggerDelay", "'soon'", "units ms, s, m, h"]),
        ({"columns": "body,colour"}, ["unknown column 'colour'", "queueOffset"]),
        ({"columns": "body,body"}, ["columns", "'body,body'"]),
    ],
)
def test_wrong_source_options_fail_at_load(
    topic: Topic, options: dict[str, object], words: list[str]
) -> None:
    text = failure(lambda: topic.read(**options))
    assert "ROCKETPY_" in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("body binary, colour string", ["unknown column 'colour'"]),
        ("body string", ["'body'", "string", "binary"]),
        ("Body binary", ["unknown column 'Body'"]),
    ],
)
def test_a_user_schema_that_does_not_fit_is_named(
    topic: Topic, schema: str, words: list[str]
) -> None:
    reader = topic.spark.read.format("rocketpy").options(**topic.options()).schema(schema)
    text = failure(lambda: reader.load().collect())
    assert "ROCKETPY_COLUMN" in text
    for word in words:
        assert word in text


def test_an_unknown_topic_is_named(topic: Topic) -> None:
    text = failure(lambda: topic.read(topic="Nowhere").collect())
    assert "topic 'Nowhere' does not exist" in text
    frame = topic.spark.createDataFrame([("x",)], "body string")
    text = failure(lambda: topic.write(frame, topic="Nowhere"))
    assert "topic 'Nowhere' does not exist" in text


def test_starting_offsets_name_queues_that_are_there(topic: Topic) -> None:
    for queues, words in [
        ({"0": 0, "1": 0, "2": 0}, "names queue 2"),
        ({"0": 0, "1": 5}, "offset 5 of queue 1"),
    ]:
        frame = topic.read(startingOffsets=json.dumps({topic.name: queues}))
        assert words in failure(frame.collect)


def test_an_unreachable_broker_is_named_in_time(topic: Topic, collected: Collected) -> None:
    options: dict[str, object] = {"endpoints": CLOSED, "connectTimeout": "500ms"}
    assert CLOSED in failure(lambda: topic.read(**options).collect())
    # One call with the default timeouts is enough: some twenty seconds.
    options["retryTimesMax"] = 2
    assert CLOSED in failure(lambda: collected.run(topic.stream(**options)))
    frame = topic.spark.createDataFrame([("x",)], "body string")
    text = failure(lambda: topic.write(frame, **options))
    assert "ROCKETPY_CONNECTION" in text
    assert f"no broker answers at {CLOSED}" in text


def test_a_port_on_which_something_else_answers_is_named(topic: Topic) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options: dict[str, object] = {
            "endpoints": f"127.0.0.1:{port}",
            "connectTimeout": "500ms",
        }
        assert f"127.0.0.1:{port}" in failure(lambda: topic.read(**options).collect())


def test_the_first_endpoint_that_answers_is_used(topic: Topic) -> None:
    topic.send("x")
    endpoints = f"{CLOSED},{topic.broker.endpoint}"
    # Half of the time is for each endpoint.
    assert topic.bodies(endpoints=endpoints, connectTimeout="4s") == ["x"]


def test_a_broker_that_stops_in_a_query_is_one_clear_error(
    spark: SparkSession, collected: Collected
) -> None:
    with LocalBroker() as broker:
        broker.create_topic("T", queues=1)
        topic = Topic("T", spark, broker)
        topic.send("a")
        impatient = {"connectTimeout": "3s", "retryTimesMax": 1}
        frame = topic.stream(startingOffsets="earliest", **impatient)
        query = collected.start(frame, processingTime="0 seconds")
        query.processAllAvailable()
        broker.stop()
        text = failure(lambda: query.awaitTermination(WAIT_SECONDS_MAX))
    assert "ROCKETPY_CONNECTION" in text
    assert "check that the broker runs" in text or "check option endpoints" in text


@pytest.mark.parametrize(
    ("schema", "row", "words"),
    [
        ("text string", ("x",), ["unknown column 'text'", "body"]),
        ("body int", (1,), ["column 'body'", "int", "binary or string"]),
        ("tags string", ("x",), ["column body is missing"]),
        ("body string, tags int", ("x", 1), ["column 'tags'", "int", "string"]),
        ("body string, queueId string", ("x", "1"), ["column 'queueId'", "cast(queueId as"]),
        ("body string", (None,), ["column body is null in row 0"]),
        ("body string, queueId int", ("x", 9), ["queueId is 9", "queues 0 to 1"]),
        ("body string, queueId int", ("x", -2), ["queueId is -2"]),
        ("body string, tags string", ("x", "a\x02b"), ["TAGS", "separator", "row 0"]),
        (
            "body string, properties map<string,string>",
            ("x", {"big": "y" * 40_000}),
            ["properties", "more than 32767"],
        ),
    ],
)
def test_rows_that_cannot_be_sent_are_named_and_nothing_is_stored(
    topic: Topic, schema: str, row: tuple[object, ...], words: list[str]
) -> None:
    text = failure(lambda: topic.write(topic.spark.createDataFrame([row], schema)))
    assert "ROCKETPY_COLUMN" in text
    for word in words:
        assert word in text
    assert topic.bodies() == []


def test_an_oversize_message_is_named_and_nothing_of_its_batch_is_stored(topic: Topic) -> None:
    rows = [(b"small",), (bytes((4 << 20) + 1),)]
    frame = topic.spark.createDataFrame(rows, "body binary").coalesce(1)
    text = failure(lambda: topic.write(frame))
    for word in ("ROCKETPY_OVERSIZE", "row 1", "4194305", "4194304"):
        assert word in text
    assert topic.bodies() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "a"}, ["unknown option colour"]),
        ({"topics": "a", "topic": None}, ["option topic is missing"]),
        ({"delivery": "twice"}, ["delivery", "exactly-once", "at-least-once"]),
        ({"txnAppId": "job"}, ["txnAppId", "txnVersion"]),
        ({"batchBytesMax": 10}, ["batchBytesMax", "'10'", "1024 to"]),
        ({"topic": None}, ["option topic is missing"]),
    ],
)
def test_wrong_sink_options_are_named(
    topic: Topic, options: dict[str, object], words: list[str]
) -> None:
    frame = topic.spark.createDataFrame([("x",)], "body string")
    text = failure(lambda: topic.write(frame, **options))
    for word in words:
        assert word in text


def test_overwrite_is_refused(topic: Topic) -> None:
    frame = topic.spark.createDataFrame([("x",)], "body string")
    writer = frame.write.format("rocketpy").options(**topic.options()).mode("overwrite")
    assert '"append"' in failure(writer.save)
