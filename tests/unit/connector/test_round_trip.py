"""Source and sink over a transport other than gRPC: they rely on the interface alone."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.options.values import SinkOptions, SourceOptions
from pyspark_rocketpy.sink.columns import SinkColumns
from pyspark_rocketpy.sink.writers import RocketpyWriter, SinkPlan
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.readers import RocketpyBatchReader, RocketpyStreamReader
from pyspark_rocketpy.transport.values import QueueTime
from tests.unit.connector.transport.scripted import (
    MemoryBroker,
    ScriptedOffsetQueries,
    ScriptedTransport,
    away,
)

TEXTS = {"endpoints": "nowhere:1", "topic": "T", "startingOffsets": "earliest"}
COLUMNS = SinkColumns.check(StructType([StructField("body", BinaryType())]))


@pytest.fixture
def broker() -> MemoryBroker:
    """Returns a broker with topic T."""
    broker = MemoryBroker()
    broker.create_topic("T", 3)
    return broker


def save(broker: MemoryBroker, *bodies: bytes, **more: str) -> None:
    """Writes with one task, as Spark does."""
    options = SinkOptions.parse({"endpoints": "nowhere:1", "topic": "T", **more})
    writer = RocketpyWriter(SinkPlan(options, COLUMNS, ScriptedTransport(broker)))
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([batch]))])


def bodies(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [body for batch in batches for body in batch["body"].to_pylist()]


def test_a_batch_reads_what_a_save_wrote(broker: MemoryBroker) -> None:
    for delivery in ("exactly-once", "at-least-once"):
        save(broker, b"a", b"b", delivery=delivery)
    options = SourceOptions.parse(TEXTS)
    reader = RocketpyBatchReader(options, source_schema(("body",)), ScriptedTransport(broker))
    found = [body for task in reader.partitions() for body in bodies(reader.read(task))]
    assert sorted(found) == [b"a", b"a", b"b", b"b"]


def test_messages_that_come_while_a_batch_is_planned_do_not_fail_it(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("T", 1)
    start_ms = broker.now_ms + 1_000

    class BusyQueries(ScriptedOffsetQueries):
        def search(self, times: Sequence[QueueTime]) -> list[int | None]:
            save(broker, b"before the start")
            broker.now_ms = start_ms
            save(broker, b"after the bounds")
            return super().search(times)

    class BusyTransport(ScriptedTransport):
        def offset_queries(self) -> ScriptedOffsetQueries:
            return BusyQueries(broker)

    options = SourceOptions.parse({**TEXTS, "startingTimestamp": str(start_ms)})
    reader = RocketpyBatchReader(options, source_schema(("body",)), BusyTransport(broker))
    assert reader.partitions() == []


def test_a_stream_reads_each_message_once_and_reports_how_far_it_is(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    options = SourceOptions.parse({**TEXTS, "consumerGroup": "g"})
    reader = RocketpyStreamReader(options, source_schema(("body",)), ScriptedTransport(broker))
    start, found = reader.initialOffset(), []
    for round_bodies in ([b"a", b"b"], [b"c"]):
        save(broker, *round_bodies)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = reader.partitions(start, end)
        found += [body for task in tasks for body in bodies(reader.read(task))]
        reader.commit(end)
        start = end
    assert sorted(found) == [b"a", b"b", b"c"]
    assert sum(broker.committed["g", "T", queue_id] for queue_id in range(3)) == 3
    save(broker, b"d")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    broker.faults = [away()]
    with caplog.at_level(logging.WARNING):
        reader.commit(end)
    assert "progress could not be reported" in caplog.text


def test_a_broker_that_is_away_fails_the_task_with_its_own_error(broker: MemoryBroker) -> None:
    broker.faults = [away()]
    with pytest.raises(ConnectionFailedError, match="the script says so"):
        save(broker, b"a")
    assert broker.topics["T"] == [[], [], []]
