"""The streaming reader's methods as Spark calls them, with a real broker and without a session."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, OffsetError
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.plan.planner import TaskPartition
from pyspark_rocketpy.source.readers import RocketpyStreamReader
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.queries import GrpcOffsetQueries
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import RetryPolicy, Subscription
from rocketpy_broker import LocalBroker
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc
from tests.support.blocks import wire_block
from tests.support.queues import Q0

# A reserved port: no program listens on it.
CLOSED = "127.0.0.1:1"
_numbers = itertools.count()


def send(broker: LocalBroker, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    """Appends messages to one queue."""
    block = wire_block(topic, bodies)
    request = broker_pb2.AppendRequest(
        topic=topic, queue_id=queue_id, records=block.records, record_sizes=block.record_sizes
    )
    with grpc.insecure_channel(broker.endpoint) as channel:
        [response] = broker_pb2_grpc.BrokerStub(channel).Append(iter([request]))
    assert response.status.code == 0


def reader(broker: LocalBroker, topic: str, **options: object) -> RocketpyStreamReader:
    """Returns a reader from the start that does not wait, unless the options say so."""
    least = {"endpoints": broker.endpoint, "startingOffsets": "earliest", "pollTimeout": "0s"}
    texts = {name: str(value) for name, value in options.items()}
    if "topicPattern" not in texts:
        texts["topic"] = topic
    parsed = SourceOptions.parse({**least, **texts})
    return RocketpyStreamReader(parsed, source_schema(None), GrpcTransport.of_source(parsed))


def planned(
    reader: RocketpyStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int, int, int]]:
    """Returns topic, queue, begin and end of each range that the tasks of a batch read."""
    tasks = [task for task in reader.partitions(start, end) if isinstance(task, TaskPartition)]
    ranges = [part for task in tasks for part in task.plan.ranges]
    return [(part.topic, part.queue_id, part.begin, part.end) for part in ranges]


@pytest.fixture
def topic(rocketpy_broker: LocalBroker) -> str:
    """Returns a topic with two queues."""
    name = f"reader-{next(_numbers)}"
    rocketpy_broker.create_topic(name, queues=2)
    return name


def test_k04_nothing_new_is_the_very_start(rocketpy_broker: LocalBroker, topic: str) -> None:
    source = reader(rocketpy_broker, topic)
    start = source.initialOffset()
    assert source.latestOffset(start, source.getDefaultReadLimit()) is start
    send(rocketpy_broker, topic, b"a")
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert planned(source, start, end) == [(topic, 0, 0, 1)]
    assert source.latestOffset(end, source.getDefaultReadLimit()) is end


def test_k04_trigger_once_has_no_limits(rocketpy_broker: LocalBroker, topic: str) -> None:
    send(rocketpy_broker, topic, b"a", b"b", b"c")
    source = reader(rocketpy_broker, topic, maxOffsetsPerTrigger=1, maxBytesPerTrigger=1)
    start = source.initialOffset()
    some = source.latestOffset(start, source.getDefaultReadLimit())
    assert planned(source, start, some) == [(topic, 0, 0, 1)]
    everything = source.latestOffset(start, ReadAllAvailable())
    assert planned(source, start, everything) == [(topic, 0, 0, 3)]


def test_k04_the_report_tells_ends_and_lag_of_every_queue(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    source = reader(rocketpy_broker, topic, maxOffsetsPerTrigger=3, consumerGroup="g")
    assert source.reportLatestOffset() == {"offsetTable": {}, "lag": {}}
    send(rocketpy_broker, topic, b"a", b"b", b"c", b"d")
    send(rocketpy_broker, topic, b"e", queue_id=1)
    source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    assert source.reportLatestOffset() == {
        "offsetTable": {f"{topic}@g": {"0": 4, "1": 1}},
        "lag": {topic: {"0": 2, "1": 0}},
    }


def test_k04_the_report_tells_the_lag_of_a_topic_that_available_now_leaves(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    source = reader(rocketpy_broker, topic, topicPattern=f"{topic}(-later)?")
    source.prepareForTriggerAvailableNow()
    later = f"{topic}-later"
    rocketpy_broker.create_topic(later, queues=1)
    start = source.initialOffset()
    assert later in source.reportLatestOffset()["lag"] or later in str(start)
    send(rocketpy_broker, later, b"a", b"b")
    assert source.latestOffset(start, source.getDefaultReadLimit()) is start
    assert source.reportLatestOffset()["lag"][later] == {"0": 2}


def test_k01_a_batch_that_is_run_again_reads_a_new_topic_from_the_same_begin(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    source = reader(rocketpy_broker, topic, topicPattern=f"{topic}(-.*)?")
    start = source.initialOffset()
    later = f"{topic}-later"
    rocketpy_broker.create_topic(later, queues=1)
    send(rocketpy_broker, later, b"a", b"b")
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert end["new"] == {f"{later}@pyspark-rocketpy": {"0": 0}}
    for _ in range(2):
        assert planned(source, start, end) == [(later, 0, 0, 2)]
    send(rocketpy_broker, later, b"c")
    following = source.latestOffset(end, source.getDefaultReadLimit())
    assert "new" not in following
    assert planned(source, end, following) == [(later, 0, 2, 3)]
    assert planned(source, end, end) == []


@pytest.mark.parametrize("end", ["-[[:digit:]]", r"\Q-7\E", r"-\pN", "-[[:^alpha:]]"])
def test_k05_a_pattern_is_read_alike_by_broker_and_query(
    rocketpy_broker: LocalBroker, topic: str, end: str
) -> None:
    found = f"{topic}-7"
    for name in (found, f"{topic}-x"):
        rocketpy_broker.create_topic(name, queues=1)
        send(rocketpy_broker, name, b"a")
    source = reader(rocketpy_broker, topic, topicPattern=topic + end)
    start = source.initialOffset()
    send(rocketpy_broker, found, b"b")
    end_offset = source.latestOffset(start, source.getDefaultReadLimit())
    assert planned(source, start, end_offset) == [(found, 0, 0, 2)]
    assert source.latestOffset(end_offset, source.getDefaultReadLimit()) is end_offset


def test_a_checkpoint_that_was_changed_is_refused_by_its_field(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, b"a")
    source = reader(rocketpy_broker, topic)
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    key = f"{topic}@pyspark-rocketpy"
    for field, value in {
        "offsetTable": {key: {"0": 1 << 70}},
        "kept": {key: {str(1 << 40): 1}},
        "epochs": {topic: "odd"},
        "store": 7,
        "recovery": [],
    }.items():
        wrong = {**end, field: value}
        for call in (
            lambda wrong=wrong: source.latestOffset(wrong, source.getDefaultReadLimit()),
            lambda wrong=wrong: source.partitions(wrong, wrong),
        ):
            with pytest.raises(OffsetError, match=f"field {field} of the checkpoint's offset"):
                call()


def test_s5_a_removed_topic_leaves_the_offset_at_once_and_is_counted(
    rocketpy_broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Removes a topic: it is reported once, whatever minOffsetsPerTrigger is."""
    enough = {"minOffsetsPerTrigger": 5, "maxTriggerDelay": "1h", "failOnDataLoss": "false"}
    send(rocketpy_broker, topic, b"a")
    source = reader(rocketpy_broker, topic, **enough)
    limit = source.getDefaultReadLimit()
    end = source.latestOffset(source.initialOffset(), limit)
    send(rocketpy_broker, topic, b"b", b"c")
    assert source.latestOffset(end, limit) is end, "two are too few"
    rocketpy_broker.delete_topic(topic)
    after = source.latestOffset(end, limit)
    assert after["offsetTable"] == {}
    assert f"offsets [1, 3) of queue 0 of topic '{topic}' are gone" in caplog.text
    assert "2 messages are skipped" in caplog.text
    assert source.latestOffset(after, limit) is after


def test_s5_messages_of_an_emptied_topic_are_lost_and_the_next_ones_are_read(
    rocketpy_broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(rocketpy_broker, topic, b"a")
    strict, allowed = (
        reader(rocketpy_broker, topic, failOnDataLoss=fails) for fails in ("true", "false")
    )
    start = strict.latestOffset(strict.initialOffset(), strict.getDefaultReadLimit())
    send(rocketpy_broker, topic, b"b", b"c")
    rocketpy_broker.empty_topic(topic)
    send(rocketpy_broker, topic, b"d")
    lost = rf"offsets \[1, 3\) of queue 0 of topic '{topic}' are gone: the queue now starts at 3"
    with pytest.raises(DataLossError, match=lost):
        strict.partitions(start, strict.latestOffset(start, strict.getDefaultReadLimit()))
    end = allowed.latestOffset(start, allowed.getDefaultReadLimit())
    with caplog.at_level(logging.WARNING):
        assert planned(allowed, start, end) == [(topic, 0, 3, 4)]
    assert "2 messages are skipped" in caplog.text


def test_s5_available_now_ends_where_a_topic_was_removed(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, b"a")
    source = reader(rocketpy_broker, topic)
    end = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    rocketpy_broker.delete_topic(topic)
    strict = reader(rocketpy_broker, topic)
    allowed = reader(rocketpy_broker, topic, failOnDataLoss="false")
    for restarted in (strict, allowed):
        restarted.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match=f"offsets from 1 on of queue 0 of topic '{topic}'"):
        strict.latestOffset(end, strict.getDefaultReadLimit())
    after = allowed.latestOffset(end, allowed.getDefaultReadLimit())
    assert allowed.latestOffset(after, allowed.getDefaultReadLimit()) is after


def lose_head(broker: LocalBroker, data: Path) -> None:
    """Removes every log segment but the last two."""
    broker.stop()
    for segment in sorted((data / "commitlog").iterdir())[:-2]:
        segment.unlink()
    broker.start()


def test_s5_messages_lost_below_the_checkpoint_are_named_or_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path, commit_log_segment_bytes=1 << 20) as broker:
        broker.create_topic("T", queues=1)
        for _ in range(4):
            send(broker, "T", bytes(800_000))
        source = reader(broker, "T")
        start = source.initialOffset()
        lose_head(broker, tmp_path)
        end = source.latestOffset(start, source.getDefaultReadLimit())
        with pytest.raises(DataLossError) as caught:
            source.partitions(start, end)
        low = int(str(caught.value).partition("starts at ")[2].partition(";")[0])
        assert 0 < low < 4
        for part in (f"offsets [0, {low})", "queue 0", "'T'", "option failOnDataLoss"):
            assert part in str(caught.value)
        allowed = reader(broker, "T", failOnDataLoss="false", maxOffsetsPerTrigger=1)
        end = allowed.latestOffset(start, allowed.getDefaultReadLimit())
        with caplog.at_level(logging.WARNING):
            assert planned(allowed, start, end) == [("T", 0, low, low + 1)]
        assert f"{low} messages are skipped" in caplog.text


def test_progress_that_cannot_be_reported_is_no_error_and_is_reported_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("T", queues=1)
        send(broker, "T", b"a")
        source = reader(broker, "T", consumerGroup="g", connectTimeout="1s", retryTimesMax=2)
        end = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
        broker.kill()
        source.commit(end)
        assert "progress could not be reported" in caplog.text
        broker.start()
        source.commit(end)
        config = ClientConfig((broker.endpoint,), 10_000)
        bounds = GrpcOffsetQueries(config, RetryPolicy(0, 1)).bounds(
            Subscription(("T",), None, "g")
        )
        assert bounds["T"][Q0].committed_offset == 1


def test_k03_a_query_outlives_a_broker_that_is_away_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalBroker(tmp_path) as broker:
        broker.create_topic("T", queues=1)
        pauses: list[int] = []

        def start_at_the_second(duration_ms: int) -> None:
            pauses.append(duration_ms)
            if len(pauses) == 2:
                broker.start()

        config = ClientConfig((broker.endpoint,), 1_000)
        queries = GrpcOffsetQueries(config, RetryPolicy(16, 1))
        monkeypatch.setattr(clock, "sleep_ms", start_at_the_second)
        subscription = Subscription(("T",), None, "")
        before = queries.bounds(subscription)
        broker.kill()
        assert queries.bounds(subscription, before, 0) == before
        assert len(pauses) >= 2


def test_k03_another_address_of_the_broker_answers_where_one_does_not(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, b"x")
    config = ClientConfig((CLOSED, rocketpy_broker.endpoint), 2_000)
    queries = GrpcOffsetQueries(config, RetryPolicy(16, 1))
    assert queries.bounds(Subscription((topic,), None, ""))[topic][Q0].max_offset == 1


def test_a_broker_that_never_answered_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[int] = []
    monkeypatch.setattr(clock, "sleep_ms", pauses.append)
    queries = GrpcOffsetQueries(ClientConfig((CLOSED,), 300), RetryPolicy(16, 1))
    with pytest.raises(ConnectionFailedError, match=CLOSED):
        queries.bounds(Subscription(("T",), None, ""))
    assert pauses == []
