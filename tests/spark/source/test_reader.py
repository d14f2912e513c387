"""Filters through real Spark: options for every query, and Spark's own filters on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter

from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.options.values import SourceOptions
from pyspark_rocketpy.source.columns import source_schema
from pyspark_rocketpy.source.plan.planner import TaskPartition
from pyspark_rocketpy.source.plan.task_plan import TaskPlan
from pyspark_rocketpy.source.readers import RocketpyPushDownReader
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from tests.spark.conftest import Collected, Topic

SWITCH = "spark.sql.python.filterPushdown.enabled"
EARLIEST = {"startingOffsets": "earliest"}
# "Aa" and "BB" have the same hash.
ROWS = [
    ("a", "Aa", ["k1", "k2"], 0),
    ("b", "BB", ["k2"], 0),
    ("c", "C", None, 0),
    ("d", None, ["k3"], 0),
    ("e", "Aa", ["k1"], 1),
]
ROWS_SCHEMA = "body string, tags string, keys array<string>, queueId int"


@pytest.fixture
def tagged(topic: Topic) -> Topic:
    """Returns a topic with tags and keys."""
    topic.write(topic.spark.createDataFrame(ROWS, ROWS_SCHEMA).coalesce(1))
    return topic


@pytest.fixture
def switched_on(spark: SparkSession) -> Iterator[None]:
    """Turns on Spark's filter pushdown to Python sources."""
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("Aa", ["a", "e"]),
        ("BB", ["b"]),
        ("BB || C", ["b", "c"]),
        ("*", ["a", "b", "c", "d", "e"]),
        ("none", []),
    ],
)
def test_c03_a_tag_filter_is_exact(tagged: Topic, expression: str, found: list[str]) -> None:
    assert tagged.bodies(filter=expression) == found


def test_c03_a_stream_with_a_filter_goes_on_where_it_ended(
    tagged: Topic, collected: Collected
) -> None:
    collected.run(tagged.stream(filter="Aa", **EARLIEST))
    assert sorted(collected.bodies()) == ["a", "e"]
    tagged.write(
        tagged.spark.createDataFrame([("f", "BB", None, 0), ("g", "Aa", None, 0)], ROWS_SCHEMA)
    )
    query = collected.run(tagged.stream(filter="Aa", **EARLIEST))
    assert sorted(collected.bodies()) == ["a", "e", "g"]
    progress = query.lastProgress
    assert progress is not None
    assert '"0":6' in str(progress["sources"][0]["endOffset"]).replace(" ", "").replace("'", '"')


def test_keys_are_looked_up_with_sparks_switch_off(tagged: Topic) -> None:
    assert tagged.bodies(keys="k1") == ["a", "e"]
    assert tagged.bodies(keys="k2, k3") == ["a", "b", "d"]
    assert tagged.bodies(keys="k2", filter="BB") == ["b"]
    assert tagged.bodies(keys="k") == []


def planned(topic: Topic, filters: Sequence[Filter] = (), **options: object) -> list[TaskPlan]:
    """Returns the plans of a batch's tasks."""
    checked = SourceOptions.parse(topic.options(**options))
    reader = RocketpyPushDownReader(checked, source_schema(None), GrpcTransport.of_source(checked))
    reader.pushFilters(list(filters))
    tasks = reader.partitions()
    return [task.plan for task in tasks if isinstance(task, TaskPartition)]


def test_k05_a_batch_reads_only_where_the_index_knows_of_its_keys(topic: Topic) -> None:
    rows = topic.spark.range(0, 20_000, 1, 1).selectExpr(
        "cast(id as string) as body",
        "cast(id % 2 as int) as queueId",
        "array(cast(id as string), 'common', concat('few', id div 7000)) as keys",
    )
    topic.write(rows)
    [plan] = planned(topic, keys="8, 10, 18001, missing")
    name = topic.name
    epoch = plan.ranges[0].topic_epoch
    begins = QueueRange(name, 0, 4, 6, epoch), QueueRange(name, 1, 9_000, 9_001, epoch)
    assert plan.ranges == begins
    assert planned(topic, keys="missing") == []
    assert sum(plan.count for plan in planned(topic, keys="common")) == 20_000
    assert topic.bodies(keys="8, 10, 18001, missing") == ["10", "18001", "8"]
    assert topic.bodies(keys="missing") == []
    assert len(topic.bodies(keys="few1")) == 7_000
    filters = [EqualTo(("keys",), ["8", "common", "few0"])]
    assert [plan.count for plan in planned(topic, filters)] == [1]
    tasks = f'[["{name}:1"],["{name}:0"]]'
    by_config: dict[str, Any] = {"allocation": "config", "allocationConfig": tasks}
    plans = planned(topic, keys="0, 2000, 18001", **by_config)
    assert [[part.begin for part in plan.ranges] for plan in plans] == [[9_000], [0, 1_000]]


def by_condition(topic: Topic, condition: str, **options: object) -> DataFrame:
    """Returns the rows that match a Spark condition."""
    return topic.read(pushDownFilters=True, **options).where(condition)


CONDITIONS = {
    "queueOffset >= 2": "cd",
    "queueOffset > 0 and queueOffset <= 2": "bc",
    "tags = 'BB'": "b",
    "tags in ('Aa', 'C') and queueId = 0": "ac",
    "storeTimestamp > timestamp '2001-01-01'": "abcde",
    "array_contains(keys, 'k2')": "ab",
    "keys = array('k1', 'k2')": "a",
    "keys = array('k2', 'k1')": "",
    "tags = 'Aa' and tags = 'BB'": "",
    "tags = 'Aa' or queueOffset = 3": "ade",
}


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_rows_are_the_same_with_filters_pushed_down(tagged: Topic, condition: str) -> None:
    found = by_condition(tagged, condition).collect()
    assert "".join(sorted(row.body.decode() for row in found)) == CONDITIONS[condition]


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize(
    "condition", ["queueId = 1", "queueOffset >= 3", "storeTimestamp < timestamp '2001-01-01'"]
)
def test_filters_that_are_pushed_down_save_tasks(tagged: Topic, condition: str) -> None:
    assert by_condition(tagged, "true", minPartitions=2).rdd.getNumPartitions() == 2
    assert by_condition(tagged, condition, minPartitions=2).rdd.getNumPartitions() == 1


@pytest.mark.usefixtures("switched_on")
def test_without_the_option_nothing_is_pushed_down(tagged: Topic) -> None:
    assert tagged.read().where("queueId = 1").count() == 1


def test_the_option_without_sparks_switch_says_what_to_set(tagged: Topic) -> None:
    with pytest.raises(PySparkException, match=f"DATA_SOURCE_PUSHDOWN_DISABLED.*{SWITCH}"):
        by_condition(tagged, "queueId = 1").collect()
