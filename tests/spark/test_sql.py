"""Spark SQL: tables, temporary views and streams, within Spark's limits for Python sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.spark.conftest import Collected, Topic
from tests.support.time_limits import WAIT_SECONDS_MAX

EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def name(topic: Topic) -> Iterator[str]:
    """Yields a name for the test's table or view, which is dropped at the end."""
    found = topic.name.replace("-", "_")
    yield found
    topic.spark.catalog.dropTempView(found)
    topic.spark.sql(f"DROP TABLE IF EXISTS {found}")


def options(topic: Topic, **more: object) -> str:
    """Returns options as SQL writes them: after OPTIONS, and after WITH."""
    listed = ", ".join(f"{key} '{value}'" for key, value in topic.options(**more).items())
    return f"({listed})"


def rows(frame: DataFrame) -> list[tuple[str, str]]:
    """Returns body and tags of each row, sorted."""
    return sorted((bytes(row.body).decode(), row.tags) for row in frame.collect())


def test_a_temporary_view_is_written_and_read(topic: Topic, name: str) -> None:
    sql = topic.spark.sql
    both = options(topic, columns="body,tags", delivery="at-least-once", **EARLIEST)
    sql(f"CREATE TEMPORARY VIEW {name} USING rocketpy OPTIONS {both}")
    sql(f"INSERT INTO {name} (body, tags) VALUES (X'61', 'x')")
    sql(f"INSERT INTO {name} SELECT CAST('b' AS BINARY), 'y'")
    assert rows(sql(f"SELECT * FROM {name} WHERE tags IN ('x', 'y')")) == [("a", "x"), ("b", "y")]


def test_a_view_reads_the_range_of_its_first_use_until_it_is_replaced(
    topic: Topic, name: str
) -> None:
    sql = topic.spark.sql
    make = f"CREATE OR REPLACE TEMPORARY VIEW {name} USING rocketpy OPTIONS {options(topic)}"
    for expected in (0, 1):
        sql(make)
        assert topic.spark.table(name).count() == expected
        topic.send("x")
        assert topic.spark.table(name).count() == expected


def test_a_view_with_a_text_body_is_for_writing(topic: Topic, name: str) -> None:
    sql = topic.spark.sql
    columns = "(body STRING, keys ARRAY<STRING>)"
    sql(f"CREATE TEMPORARY VIEW {name} {columns} USING rocketpy OPTIONS {options(topic)}")
    sql(f"INSERT INTO {name} VALUES ('a', array('k1'))")
    sql(f"INSERT INTO {name} (body) VALUES ('b')")
    sql(f"INSERT INTO {name} BY NAME SELECT 'c' AS body")
    assert topic.bodies() == ["a", "b", "c"]
    with pytest.raises(PySparkException, match="'body' has type string in the schema"):
        sql(f"SELECT * FROM {name}").collect()


@pytest.mark.parametrize("columns", ["", "(body BINARY, tags STRING)"])
def test_a_table_is_written_and_read_with_options_in_the_statement(
    topic: Topic, name: str, columns: str
) -> None:
    sql = topic.spark.sql
    kept = options(topic, columns="body,tags")
    sql(f"CREATE TABLE {name} {columns} USING rocketpy OPTIONS {kept} COMMENT 'orders'")
    with_options = f"{name} WITH {options(topic)}"
    sql(f"INSERT INTO {with_options} (body, tags) VALUES (X'61', 'x')")
    sql(f"INSERT INTO {with_options} SELECT body, 'y' FROM {with_options}")
    assert rows(sql(f"SELECT * FROM {with_options}")) == [("a", "x"), ("a", "y")]
    for statement in (f"SELECT * FROM {name}", f"INSERT INTO {name} VALUES (X'61', 'x')"):
        with pytest.raises(PySparkException, match=r"endpoints is missing.*WITH \(\.\.\.\)"):
            sql(statement).collect()


def test_frames_are_written_into_a_table(topic: Topic, name: str) -> None:
    columns = "(body STRING, tags STRING)"
    topic.spark.sql(f"CREATE TABLE {name} {columns} USING rocketpy OPTIONS {options(topic)}")
    frame = topic.spark.createDataFrame([("a", "x")], "body string, tags string")
    given = topic.options()
    frame.writeTo(name).options(**given).append()
    frame.write.format("rocketpy").options(**given).mode("append").saveAsTable(name)
    assert topic.bodies() == ["a", "a"]


def test_a_table_is_streamed_from_and_to(
    topic: Topic, name: str, collected: Collected, tmp_path: Path
) -> None:
    spark = topic.spark
    columns = "(body BINARY, tags STRING)"
    spark.sql(f"CREATE TABLE {name} {columns} USING rocketpy OPTIONS {options(topic)}")
    topic.send("a")
    given = topic.options(**EARLIEST)
    frame = spark.readStream.options(**given).table(name)
    into = frame.selectExpr("CAST('b' AS BINARY) AS body", "'x' AS tags").writeStream
    into = into.options(**topic.options()).option("checkpointLocation", str(tmp_path / "into"))
    assert into.trigger(availableNow=True).toTable(name).awaitTermination(WAIT_SECONDS_MAX)
    stream = spark.sql(f"SELECT body FROM STREAM({name}) WITH {options(topic, **EARLIEST)}")
    collected.run(stream)
    assert sorted(collected.bodies()) == ["a", "b"]


def test_a_stream_is_queried_by_the_name_of_its_view(
    topic: Topic, name: str, collected: Collected
) -> None:
    topic.send("a", "b")
    topic.stream(**EARLIEST).createOrReplaceTempView(name)
    collected.run(topic.spark.sql(f"SELECT body FROM {name} WHERE string(body) > 'a'"))
    assert collected.bodies() == ["b"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TEMPORARY VIEW {0} USING rocketpy OPTIONS {1}",
        "CREATE TABLE {0} USING rocketpy OPTIONS {1}",
        "CREATE TABLE {0} (body BINARY) USING rocketpy; SELECT * FROM {0} WITH {1}",
        "CREATE TABLE {0} (body BINARY) USING rocketpy; INSERT INTO {0} WITH {1} VALUES (X'61')",
    ],
)
def test_a_mistyped_option_is_refused(topic: Topic, name: str, statement: str) -> None:
    *before, last = statement.format(name, options(topic, retryTimeMax=1)).split("; ")
    for one in before:
        topic.spark.sql(one)
    with pytest.raises(PySparkException, match="unknown option retrytimemax; did you mean"):
        topic.spark.sql(last).collect()


def test_insert_overwrite_is_refused(topic: Topic, name: str) -> None:
    sql = topic.spark.sql
    sql(f"CREATE TEMPORARY VIEW {name} (body STRING) USING rocketpy OPTIONS {options(topic)}")
    with pytest.raises(PySparkException, match='"overwrite" is not supported'):
        sql(f"INSERT OVERWRITE {name} VALUES ('a')")
