"""The exactly-once sink: failures of tasks, drivers and brokers, and the rows that readers see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Collected, Topic
from tests.support.proxies import environment_with, recording_proxy
from tests.support.time_limits import WAIT_SECONDS_MAX

PROGRAM = Path(__file__).parent / "failing_attempts.py"
# Its jobs, by the topic that they write to.
FAILING = {
    "raised-batch": "raise:batch",
    "killed-stream": "kill:stream",
    "killed-batch": "kill:batch",
}


def numbers(count: int, begin: int = 0) -> list[str]:
    return sorted(str(number) for number in range(begin, begin + count))


def stream(source: Topic, target: Topic, folder: Path, **options: object) -> StreamingQuery:
    """Copies all available messages to the target, from the checkpoint on."""
    frame = source.stream(startingOffsets="earliest", columns="body")
    writer = frame.writeStream.format("rocketpy").options(**target.options(**options))
    writer = writer.option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS_MAX)
    return query


@pytest.mark.slow
def test_s2_attempts_that_fail_never_show(spark: SparkSession, tmp_path: Path) -> None:
    """Runs all jobs in one driver: its start costs more than they do.

    The environment names a proxy, as on company machines. Driver, planners and tasks get it, and
    reach a broker of this machine all the same.
    """
    with LocalBroker() as broker:
        for name in ("source", *FAILING):
            broker.create_topic(name, queues=4)
        source = Topic("source", spark, broker)
        source.write(spark.range(0, 20_000, 1, 2).selectExpr("cast(id as string) as body"))
        where = json.dumps({"endpoints": broker.endpoint})
        jobs = [f"{job}:{name}" for name, job in FAILING.items()]
        program = [sys.executable, str(PROGRAM), where, str(tmp_path), *jobs]
        pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with recording_proxy() as proxy:
            done = subprocess.run(
                program,
                env=environment_with(proxy.url, **pythons),
                capture_output=True,
                text=True,
                check=False,
                timeout=480,
            )
        assert done.returncode == 0, done.stderr[-3_000:]
        assert proxy.asked == []
        for name in FAILING:
            assert Topic(name, spark, broker).bodies() == numbers(20_000), name


def test_s2_a_failed_job_leaves_nothing_to_see(new_topic: Callable[..., Topic]) -> None:
    with LocalBroker() as broker:
        topic = new_topic(broker=broker)
        rows = topic.spark.range(0, 20_000, 1, 2)
        broken = rows.selectExpr("if(id = 19999, null, cast(id as string)) as body")
        with pytest.raises(PySparkException, match="body is null in row 9999 of partition 1"):
            topic.write(broken, batchBytesMax=20_000)
        assert topic.bodies() == []
        assert staging_files(broker) == []
        topic.write(rows.selectExpr("cast(id as string) as body"))
        assert topic.bodies() == numbers(20_000)


def test_s2_a_failed_micro_batch_leaves_nothing_to_see(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails in the last of three tasks; two run at once, so one has ended by then."""
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 2:
            raise RuntimeError("a task fails")
        yield from batches

    source = new_topic(queues=3)
    for queue_id in range(3):
        source.send(f"{queue_id}", queue_id=queue_id)
    with LocalBroker() as broker:
        target = new_topic(broker=broker)
        frame = source.stream(startingOffsets="earliest", columns="body", minPartitions=3)
        writer = frame.mapInArrow(failing, frame.schema).writeStream.format("rocketpy")
        writer = writer.options(**target.options()).option("checkpointLocation", str(tmp_path))
        with pytest.raises(PySparkException, match="a task fails"):
            writer.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS_MAX)
        assert target.bodies() == []
        assert staging_files(broker) == []


def staging_files(broker: LocalBroker) -> list[str]:
    """Returns the names of the files in the broker's staging area."""
    return [path.name for path in (broker.data / "rocketpy" / "staging").iterdir()]


def test_s7_a_micro_batch_that_spark_repeats_shows_once(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    source.send(*numbers(10))
    stream(source, target, tmp_path / "checkpoint")
    # A driver that is killed after the sink's commit has not written this file.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    source.send(*numbers(10, 10))
    stream(source, target, tmp_path / "checkpoint")
    assert target.bodies() == numbers(20)


def test_s7_an_old_copy_of_a_checkpoint_writes_nothing_twice(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    for turn in range(3):
        source.send(*numbers(10, 10 * turn))
        stream(source, target, tmp_path / "checkpoint")
        if turn == 0:
            shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    with pytest.raises(PySparkException, match="ROCKETPY_COMMIT: this is batch 1 of the query"):
        stream(source, target, tmp_path / "old")
    assert target.bodies() == numbers(30)


def test_s7_a_save_of_foreach_batch_shows_once_however_often_it_is_called(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, first, second = new_topic(), new_topic(), new_topic()
    source.send(*numbers(10))
    broken = [True]

    def save(batch: DataFrame, batch_id: int) -> None:
        first.write(batch, txnAppId="first", txnVersion=batch_id)
        if broken.pop() if broken else False:
            raise RuntimeError("between two saves")
        second.write(batch, txnAppId="second", txnVersion=batch_id)

    def run() -> None:
        frame = source.stream(startingOffsets="earliest", columns="body")
        writer = frame.writeStream.foreachBatch(save)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS_MAX)

    with pytest.raises(PySparkException, match="between two saves"):
        run()
    source.send(*numbers(10, 10))
    run()
    assert first.bodies() == numbers(20)
    assert second.bodies() == numbers(20)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_s3_a_broker_that_is_killed_and_comes_back_fails_no_task(
    spark: SparkSession, tmp_path: Path, delivery: str
) -> None:
    written, killed = tmp_path / "written", tmp_path / "killed"
    for pipe in (written, killed):
        os.mkfifo(pipe)

    def pausing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches; the broker is killed after the first one of task 0."""
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 1 and context.partitionId() == 0:
                written.write_bytes(b".")
                killed.read_bytes()
            yield batch

    with LocalBroker(tmp_path / "store") as broker:
        broker.create_topic("T", queues=2)
        topic = Topic("T", spark, broker)
        rows = spark.range(0, 50_000, 1, 2).selectExpr("cast(id as string) as body")

        def restart() -> None:
            written.read_bytes()
            broker.kill()
            killed.write_bytes(b".")
            broker.start()

        # The thread waits without end if the job fails before it has written anything.
        thread = threading.Thread(target=restart, daemon=True)
        thread.start()
        # Enough retries for any broker start on a busy machine.
        options = {"batchBytesMax": 20_000, "retryTimesMax": 1_000}
        topic.write(rows.mapInArrow(pausing, rows.schema), delivery=delivery, **options)
        thread.join()
        if delivery == "exactly-once":
            assert topic.bodies() == numbers(50_000)
        else:
            assert sorted(set(topic.bodies())) == numbers(50_000)


def test_a_broker_that_stays_away_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with LocalBroker() as broker:
        broker.create_topic("T", queues=1)
        topic = Topic("T", spark, broker)

        def stopping(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                if number == 1:
                    os.kill(pid, 9)
                yield batch

        pid = broker.pid
        rows = spark.range(0, 50_000, 1, 1).selectExpr("cast(id as string) as body")
        with pytest.raises(PySparkException, match=r"ROCKETPY_CONNECTION.*no broker answers at"):
            topic.write(
                rows.mapInArrow(stopping, rows.schema),
                connectTimeout="300ms",
                retryTimesMax=2,
            )


def test_exactly_once_and_at_least_once_write_the_same(new_topic: Callable[..., Topic]) -> None:
    first, second = new_topic(), new_topic()
    rows = first.spark.range(0, 1_000, 1, 1).selectExpr(
        "cast(id as string) as body", "concat('g', id % 5) as messageGroup", "'t' as tags"
    )
    first.write(rows)
    second.write(rows, delivery="at-least-once")
    columns = ["queueId", "queueOffset", "body", "tags", "messageGroup"]
    expected = sorted(second.read().select(*columns).collect())
    assert sorted(first.read().select(*columns).collect()) == expected


def test_s2_a_stream_beside_the_writer_sees_every_row_once(
    new_topic: Callable[..., Topic], collected: Collected
) -> None:
    topic = new_topic(queues=4)
    query = collected.start(
        topic.stream(startingOffsets="earliest", columns="body"), processingTime="0 seconds"
    )
    try:
        for turn in range(2):
            rows = topic.spark.range(20_000 * turn, 20_000 * (turn + 1), 1, 4)
            topic.write(rows.selectExpr("cast(id as string) as body"), batchBytesMax=20_000)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(collected.bodies()) == numbers(40_000)
