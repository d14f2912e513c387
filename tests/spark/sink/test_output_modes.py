"""Output modes of a streaming query: append and complete; update by foreachBatch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.conftest import Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

BATCHES = (["a", "b", "a"], ["c", "a"])


def totals(source: Topic) -> DataFrame:
    """Returns the number of occurrences of each text."""
    counted = source.stream(startingOffsets="earliest").groupBy("body").count()
    return counted.selectExpr("concat(cast(body as string), count) as body")


def run(frame: DataFrame, target: Topic, checkpoint: Path, mode: str) -> None:
    """Writes all available rows."""
    writer = frame.writeStream.format("rocketpy").options(**target.options()).outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert writer.start().awaitTermination(WAIT_SECONDS_MAX)


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_in_mode_complete_each_row_of_each_batch_is_a_message(
    new_topic: Callable[..., Topic], tmp_path: Path, delivery: str
) -> None:
    source, target = new_topic(), new_topic()
    for bodies in BATCHES:
        source.send(*bodies)
        frame = totals(source)
        writer = frame.writeStream.format("rocketpy").outputMode("complete")
        writer = writer.options(**target.options(delivery=delivery))
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS_MAX)
    assert target.bodies() == sorted(["a2", "b1", "a3", "b1", "c1"])


def test_a_batch_in_mode_complete_that_runs_again_shows_once(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    source.send(*BATCHES[0])
    run(totals(source), target, tmp_path / "c", "complete")
    (tmp_path / "c" / "commits" / "0").unlink()
    (tmp_path / "c" / "commits" / ".0.crc").unlink(missing_ok=True)
    run(totals(source), target, tmp_path / "c", "complete")
    assert target.bodies() == ["a2", "b1"]


def test_mode_update_is_refused_by_spark_and_written_by_foreach_batch(
    new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run(totals(source), target, tmp_path / "refused", "update")

    def save(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):  # Spark may call it again for the same batch.
            target.write(batch, txnAppId="totals", txnVersion=batch_id)

    for bodies in BATCHES:
        source.send(*bodies)
        writer = totals(source).writeStream.outputMode("update").foreachBatch(save)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_SECONDS_MAX)
    assert target.bodies() == sorted(["a2", "b1", "a3", "c1"])
