"""Writes to a live cluster by Spark: all rows, their queues, and repeats with the same keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.interop.cluster.cluster import A, B
from tests.interop.spark.queries import OfCluster, places
from tests.support.time_limits import WAIT_SECONDS_MAX

ROWS = 20_000
# One for each queue of the cluster's three masters.
TASKS = 6
CONTROL = "rocketpy_control"


def write(of_cluster: OfCluster, frame: DataFrame, **options: object) -> None:
    given = of_cluster.options(**options)
    frame.write.format("rocketpy").options(**given).mode("append").save()


def test_what_is_written_is_read(of_cluster: OfCluster) -> None:
    frame = of_cluster.spark.range(ROWS).selectExpr(
        "concat('body ', id) as body",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "array(cast(id as string), 'all') as keys",
        "map('number', cast(id as string)) as properties",
        "concat('group ', id % 7) as messageGroup",
    )
    write(of_cluster, frame)
    rows = of_cluster.read_written(columns="*").collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body %d" % n for n in range(ROWS))
    assert len({row.msgId for row in rows}) == ROWS
    groups: dict[str, set[tuple[str, int]]] = {}
    for row in rows:
        number = int(row.body[len("body ") :])
        assert row.tags == ("odd" if number % 2 else "even")
        assert row["keys"] == [str(number), "all"]
        assert row.properties["number"] == str(number)
        groups.setdefault(row.messageGroup, set()).add((row.brokerName, row.queueId))
    assert [len(queues) for queues in groups.values()] == [1] * 7


def test_a_frame_goes_back_to_the_queues_that_it_came_from(of_cluster: OfCluster) -> None:
    for name in (A, B):
        for queue_id in (0, 1):
            of_cluster.send(name, *(f"{name} {queue_id} {n}" for n in range(3)), queue_id=queue_id)
    before = places(of_cluster.read())
    write(of_cluster, of_cluster.read(columns="body,properties,queueId,brokerName"))
    after = places(of_cluster.read_written())
    assert [place for place in after if place.queue_offset < 3] == before
    moved = [place._replace(queue_offset=place.queue_offset - 3) for place in after]
    assert [place for place in moved if place.queue_offset >= 0] == before


@pytest.mark.parametrize("delivery", ["at-least-once", "effectively-once"])
def test_s01_a_batch_that_runs_again_loses_nothing_and_its_copies_have_their_keys(
    of_cluster: OfCluster, tmp_path: Path, delivery: str
) -> None:
    """Fails the last task when the other tasks have stored their rows; the query starts again."""
    failed, target = tmp_path / "failed", f"{of_cluster.topic[:90]}-copy"
    of_cluster.cluster.create_topic(target)
    of_cluster.cluster.create_topic(CONTROL, 1, [of_cluster.cluster.broker(A)])
    of_cluster.send_to_all("row", 500)

    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == TASKS - 1 and not failed.exists():
            failed.touch()
            raise RuntimeError("planned")

    def run() -> None:
        frame = of_cluster.spark.readStream.format("rocketpy").options(
            **of_cluster.options(startingOffsets="earliest", minPartitions=TASKS)
        )
        rows = frame.load().select("body").mapInArrow(fail_once, "body binary")
        writer = rows.writeStream.format("rocketpy").options(
            **of_cluster.options(topic=target, batchBytesMax=1_024, delivery=delivery)
        )
        checkpoint = str(tmp_path / "checkpoint-of-copy")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS_MAX)

    with pytest.raises(PySparkException, match="planned"):
        run()
    run()
    # Once more with nothing new.
    run()
    copied = of_cluster.read_written(topic=target).select("body", "msgId").collect()
    sent = {place.body for place in of_cluster.sent}
    assert {bytes(row.body) for row in copied} == sent
    keys = {(bytes(row.body), row.msgId) for row in copied}
    if delivery == "effectively-once":
        assert len(copied) == len(of_cluster.sent)
    else:
        assert len(copied) > len(of_cluster.sent), "the first run stored nothing"
    # A message of each body was sent to each queue.
    assert len(keys) == len(of_cluster.sent)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delivery": "exactly-once"}, "option delivery is exactly-once, which a cluster"),
        ({"topic": "nowhere"}, "nowhere"),
        ({"nameServer": "127.0.0.1:9"}, "check option nameServer"),
    ],
)
def test_a_wrong_option_is_told_before_a_job(
    of_cluster: OfCluster, options: dict[str, str], words: str
) -> None:
    frame = of_cluster.spark.range(1).selectExpr("'a' as body")
    with pytest.raises(PySparkException, match=words):
        write(of_cluster, frame, **options)
