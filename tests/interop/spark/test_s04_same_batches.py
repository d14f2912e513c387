"""A range read twice on a live cluster: the Arrow batches are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import arrow_schema, source_schema
from pyspark_rocketpy.source.message_filter import MessageFilter
from pyspark_rocketpy.source.range_reader import ReadConfig, read_ranges
from pyspark_rocketpy.transport.remoting.source import RemotingSource
from pyspark_rocketpy.transport.values import PullOptions
from tests.interop.cluster.cluster import OLD, A
from tests.interop.spark.queries import OfCluster

BATCH_BYTES, SENDS, MESSAGES = 64 << 10, 6, 400


def batches(of_cluster: OfCluster, name: str, pulls_max: int, begin: int) -> list[pa.RecordBatch]:
    """Returns a queue's messages from `begin` on, as a task yields them."""
    options = SourceOptions.parse(of_cluster.options(pullsInFlightMax=pulls_max))
    wanted = MessageFilter(None, None, None)
    pull = PullOptions(options.consumer_group, BATCH_BYTES, fail_on_data_loss=True)
    config = ReadConfig(RemotingSource.of_source(options), pull, wanted)
    ranges = (QueueRange(of_cluster.topic, 0, begin, SENDS * MESSAGES, broker_name=name),)
    return list(read_ranges(config, ranges, arrow_schema(source_schema(("*",)))))


@pytest.mark.parametrize("name", [A, OLD])
def test_s04_batches_do_not_depend_on_how_many_pulls_are_on_their_way(
    of_cluster: OfCluster, name: str
) -> None:
    for number in range(SENDS):
        of_cluster.send(name, *("x" * (7 * n % 900) + f"{number}" for n in range(MESSAGES)))
    once = batches(of_cluster, name, 64, 0)
    assert len(once) > 5
    assert sum(len(batch) for batch in once) == SENDS * MESSAGES
    for pulls_max in (64, 1, 7):
        again = batches(of_cluster, name, pulls_max, 0)
        assert [batch.num_rows for batch in again] == [batch.num_rows for batch in once]
        assert again == once
