"""Topics deleted and recreated, at each moment of a batch. No session.

The tests call the reader's methods as Spark does, with a real broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.readers import RocketpyBatchReader, RocketpyStreamReader
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from rocketpy_broker import LocalBroker
from tests.spark.source.test_stream_reader import planned, reader, send
from tests.spark.source.test_stream_reader import topic as topic  # noqa: PLC0414 (a fixture)

AGAIN = "deleted and recreated"
OLD, NEW = [b"old"] * 10, [b"new"] * 15


def make_again(broker: LocalBroker, name: str, *bodies: bytes) -> None:
    broker.delete_topic(name)
    broker.create_topic(name, queues=2)
    if bodies:
        send(broker, name, *bodies)


def read_to(source: RocketpyStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return dict(source.latestOffset(start, source.getDefaultReadLimit()))


def rows(source: Any, partitions: Any) -> Iterator[bytes]:
    for partition in partitions:
        for batch in source.read(partition):
            yield from batch["body"].to_pylist()


def lenient(broker: LocalBroker, name: str, **options: object) -> RocketpyStreamReader:
    return reader(broker, name, failOnDataLoss="false", **options)


@pytest.mark.parametrize("stopped", [True, False])
def test_s9_a_topic_made_again_fails_by_name_or_is_read_from_its_begin(
    rocketpy_broker: LocalBroker, topic: str, stopped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    send(rocketpy_broker, topic, *OLD)
    strict, allowed = reader(rocketpy_broker, topic), lenient(rocketpy_broker, topic)
    end = read_to(strict, strict.initialOffset())
    assert read_to(allowed, end) == end
    make_again(rocketpy_broker, topic, *NEW)
    if stopped:
        strict, allowed = reader(rocketpy_broker, topic), lenient(rocketpy_broker, topic)
    with pytest.raises(DataLossError, match=f"topic '{topic}' are gone: the topic was {AGAIN}"):
        read_to(strict, end)
    with caplog.at_level(logging.WARNING):
        after = read_to(allowed, end)
    assert f"topic '{topic}' are gone: the topic was {AGAIN}" in caplog.text
    for _ in range(2):
        assert planned(allowed, end, after) == [(topic, 0, 0, 15)]
        assert list(rows(allowed, allowed.partitions(end, after))) == NEW
    assert read_to(allowed, after) is not None
    assert planned(strict, after, read_to(strict, after)) == []
    send(rocketpy_broker, topic, b"one more")
    assert planned(strict, after, read_to(strict, after)) == [(topic, 0, 15, 16)]


def test_s9_a_topic_made_again_before_anything_of_it_was_read_is_noticed_once(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    source = lenient(rocketpy_broker, topic)
    start = source.initialOffset()
    make_again(rocketpy_broker, topic)
    after = read_to(source, start)
    assert after["epochs"] != start["epochs"]
    assert planned(source, start, after) == []
    assert source.latestOffset(after, source.getDefaultReadLimit()) is after


def test_s9_made_again_between_the_offsets_and_the_plan(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, *OLD)
    strict, allowed = reader(rocketpy_broker, topic), lenient(rocketpy_broker, topic)
    start = strict.initialOffset()
    end = read_to(strict, start)
    make_again(rocketpy_broker, topic, *NEW)
    with pytest.raises(DataLossError, match=AGAIN):
        strict.partitions(start, end)
    assert planned(allowed, start, end) == []
    after = read_to(allowed, end)
    assert list(rows(allowed, allowed.partitions(end, after))) == NEW


@pytest.mark.parametrize("again", [True, False])
def test_s9_made_again_or_deleted_between_the_plan_and_its_task(
    rocketpy_broker: LocalBroker, topic: str, again: bool
) -> None:
    send(rocketpy_broker, topic, *OLD)
    strict, allowed = reader(rocketpy_broker, topic), lenient(rocketpy_broker, topic)
    start = strict.initialOffset()
    end = read_to(strict, start)
    tasks = strict.partitions(start, end)
    if again:
        make_again(rocketpy_broker, topic, *NEW)
    else:
        rocketpy_broker.delete_topic(topic)
    with pytest.raises(DataLossError, match=f"topic '{topic}' are gone: topic '{topic}' "):
        list(rows(strict, tasks))
    assert list(rows(allowed, tasks)) == []
    after = read_to(allowed, end)
    found = list(rows(allowed, allowed.partitions(end, after)))
    assert found == (NEW if again else [])


@pytest.mark.parametrize("fails", [True, False])
def test_s9_made_again_while_a_task_reads(
    rocketpy_broker: LocalBroker, topic: str, fails: bool
) -> None:
    """Reads two queues one after the other: the first one's rows are there before the deletion."""
    send(rocketpy_broker, topic, *OLD)
    send(rocketpy_broker, topic, *OLD, queue_id=1)
    source = reader(rocketpy_broker, topic, failOnDataLoss=fails)
    start = source.initialOffset()
    reading = rows(source, source.partitions(start, read_to(source, start)))
    found = [next(reading)]
    make_again(rocketpy_broker, topic)
    for queue_id in (0, 1):
        send(rocketpy_broker, topic, *NEW, queue_id=queue_id)
    remark = f"are gone: topic '{topic}' was deleted and"
    expected = pytest.raises(DataLossError, match=remark) if fails else nullcontext()
    with expected:
        found.extend(reading)
    assert found == OLD


def test_s9_available_now_reads_a_topic_that_was_made_again(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, *OLD)
    first = reader(rocketpy_broker, topic)
    end = read_to(first, first.initialOffset())
    make_again(rocketpy_broker, topic, *NEW)
    source = lenient(rocketpy_broker, topic)
    source.prepareForTriggerAvailableNow()
    send(rocketpy_broker, topic, b"for the next run")
    after = read_to(source, end)
    assert list(rows(source, source.partitions(end, after))) == NEW


def test_s9_an_offset_without_epochs_is_of_any_topic(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, *OLD)
    source = reader(rocketpy_broker, topic)
    end = read_to(source, source.initialOffset())
    old = {name: part for name, part in end.items() if name not in {"epochs", "store"}}
    send(rocketpy_broker, topic, b"more")
    after = read_to(source, old)
    assert planned(source, old, after) == [(topic, 0, 10, 11)]
    assert after["epochs"] == end["epochs"]


def test_s9_a_batch_whose_topic_is_made_again_before_its_tasks_has_no_row_of_it(
    rocketpy_broker: LocalBroker, topic: str
) -> None:
    send(rocketpy_broker, topic, *OLD)
    options = SourceOptions.parse({"endpoints": rocketpy_broker.endpoint, "topic": topic})
    source = RocketpyBatchReader(options, source_schema(None), GrpcTransport.of_source(options))
    tasks = source.partitions()
    make_again(rocketpy_broker, topic, *NEW)
    with pytest.raises(DataLossError, match=f"are gone: topic '{topic}' was deleted and"):
        list(rows(source, tasks))


def test_s9_progress_of_the_old_topic_is_not_reported_for_the_new_one(
    rocketpy_broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(rocketpy_broker, topic, *OLD)
    source = reader(rocketpy_broker, topic, consumerGroup="progress")
    end = read_to(source, source.initialOffset())
    make_again(rocketpy_broker, topic, b"new")
    with caplog.at_level(logging.WARNING):
        source.commit(end)
    assert "progress could not be reported" in caplog.text
    assert f"topic '{topic}' was deleted and" in caplog.text
