"""Spark's processes reach a broker over TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalBroker]:
    """Yields a broker with a self-signed certificate."""
    with LocalBroker(tls=True) as broker:
        yield broker


def test_a_topic_is_written_and_read_over_tls(
    secured: LocalBroker, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    topic = new_topic(broker=secured)
    tls = {"endpoints": secured.tls_endpoint, "tls": "true", "tlsCaFile": secured.tls_ca_file}
    rows = [(f"row {number}", number % 2) for number in range(20)]
    topic.write(topic.spark.createDataFrame(rows, "body string, queueId int"), **tls)
    expected = sorted(body for body, _ in rows)
    assert topic.bodies(**tls) == expected
    copy = new_topic(broker=secured)
    query = (
        topic.stream(**tls, startingOffsets="earliest")
        .select("body")
        .writeStream.format("rocketpy")
        .options(**copy.options(**tls))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert copy.bodies(**tls) == expected
    with pytest.raises(PySparkException, match=r"certificate .* is not accepted.*tlsCaFile"):
        topic.bodies(**{**tls, "tlsCaFile": None})
