"""Rows that name a queue of one of a cluster's brokers, and rows that name too little."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.routes import KnownQueues, Spread, routes_of
from pyspark_rocketpy.sink.rows import Rows
from pyspark_rocketpy.transport.write_values import BatchName, Block, WriteQueues

QUEUES = {
    "T": WriteQueues({"broker-a": 2, "broker-b": 3}),
    "U": WriteQueues({"broker-b": 4}),
    "V": WriteQueues({"": 2}),
}


class Writer:
    """A BlockWriter that knows these topics."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        self.asked += topics
        return {topic: QUEUES[topic] for topic in topics}

    def send(self, block: Block) -> None:
        raise NotImplementedError

    def finish(self) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def numbers(topics: list[str], **columns: pa.Array) -> list[int]:
    """Returns the queue of each row, numbered through the brokers."""
    count = len(topics)
    batch = pa.record_batch({"body": pa.array([b"x"] * count), "topic": topics, **columns})
    rows = Rows.of(batch, tuple(batch.schema.names), 0, 0)
    writer = Writer()
    routes = routes_of(rows, None, KnownQueues(writer), Spread(BatchName("w", 0), 0))
    assert sorted(writer.asked) == sorted(set(topics))
    return [int(number) for number in routes.queue_ids]


def ids(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def names(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def test_a_queue_is_counted_through_the_topic_s_brokers() -> None:
    brokers = names("broker-b", "broker-a", "broker-b", "broker-b", None)
    found = numbers(["T", "T", "T", "U", "U"], queueId=ids(0, 1, 2, 3, 1), brokerName=brokers)
    assert found == [2, 1, 4, 3, 1]


def test_rows_without_a_queue_id_are_spread_whatever_broker_they_name() -> None:
    found = numbers(["T"] * 50, queueId=ids(*[None] * 50), brokerName=names(*["broker-x"] * 50))
    assert set(found) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("brokers", [{}, {"brokerName": names("")}, {"brokerName": names(None)}])
def test_one_broker_needs_no_name(brokers: dict[str, pa.Array]) -> None:
    assert numbers(["U"], queueId=ids(2), **brokers) == [2]
    assert numbers(["V"], queueId=ids(1), **brokers) == [1]


@pytest.mark.parametrize(
    ("topic", "queue_id", "name", "words"),
    [
        ("T", 1, None, r"queueId is set in row 0 .* several brokers \(broker-a, broker-b\)"),
        (
            "T",
            1,
            "broker-x",
            "brokerName is 'broker-x' in row 0 .* now has write queues at broker-a, broker-b;",
        ),
        ("T", 2, "broker-a", "queueId is 2 in row 0 .* has queues 0 to 1 at broker broker-a"),
        ("T", -2, "broker-a", "queueId is -2 in row 0 .* has queues 0 to 1 at broker broker-a"),
        ("T", -1, "broker-a", "queueId is -1 in row 0 .* has queues 0 to 1 at broker broker-a"),
        ("V", -1, None, "queueId is -1 in row 0 .* has queues 0 to 1: set one of them"),
        ("V", 2, None, "queueId is 2 in row 0 .* has queues 0 to 1: set one of them"),
        ("V", 1, "broker-a", "brokerName is 'broker-a' in row 0 .* has no name; drop"),
    ],
)
def test_a_queue_that_is_not_there_is_told_by_its_row(
    topic: str, queue_id: int, name: str | None, words: str
) -> None:
    with pytest.raises(ColumnError, match=words):
        numbers([topic], queueId=ids(queue_id), brokerName=names(name))
