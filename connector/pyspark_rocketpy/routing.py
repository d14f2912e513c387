"""Which topic and queue each row goes to. Holds how many queues topics have, for a task's time.

A row with a queueId goes there. Rows of one messageGroup go to one queue, by the group's hash and
the topic's number of queues, so another number moves groups: order across such a change is kept
only by readers that finish the old queue first. All others are spread. Row P06.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy.client import ClientConfig
from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.retrying import RetryPolicy, retried
from pyspark_rocketpy.rows import Rows, first_true
from rocketpy_proto.record import java_hashes

# A batch is spread over as many queues as it has this many rows.
ROWS_PER_QUEUE_MIN = 5_000


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Rows of one queue."""

    topic: str
    queue_id: int
    rows: Rows


class QueueNums:
    """How many queues topics have for writing; each topic is asked for once a task."""

    def __init__(self, client: ClientConfig, policy: RetryPolicy) -> None:
        self._client = client
        self._policy = policy
        self._known: dict[str, int] = {}

    def of(self, topics: Sequence[str]) -> list[int]:
        """Of each topic. Raises BrokerError for one that does not exist."""
        missing = [topic for topic in topics if topic not in self._known]
        if missing:
            self._known |= retried(
                self._client, self._policy, lambda client: client.write_queue_nums(missing)
            )
        return [self._known[topic] for topic in topics]


def by_queue(
    rows: Rows, topic: str | None, queue_nums: QueueNums, turn: int
) -> Iterator[QueueRows]:
    """The rows in parts, each of one queue, in their order.

    `topic` is for rows that name none; `turn` varies the queue that spreading begins with.
    Raises ColumnError, BrokerError, ConnectionFailedError.
    """
    if not (rows.has("topic") or rows.has("queueId") or rows.has("messageGroup")):
        assert topic is not None, "the options were checked when the write was planned"
        yield from _spread(rows, topic, queue_nums, turn)
        return
    topics = _topics(rows, topic).dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy().astype(np.int64)
    queue_ids = _queue_ids(rows, np.array(queue_nums.of(names), np.int64)[codes], turn)
    keys = (codes << 32) | queue_ids
    order = np.argsort(keys, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        yield QueueRows(names[codes[part[0]]], int(queue_ids[part[0]]), rows.take(part))


def _spread(rows: Rows, topic: str, queue_nums: QueueNums, turn: int) -> Iterator[QueueRows]:
    """Slices of rows, each to the next queue."""
    (nums,) = queue_nums.of([topic])
    slices = max(1, min(nums, len(rows) // ROWS_PER_QUEUE_MIN))
    bounds = [len(rows) * number // slices for number in range(slices + 1)]
    for number, (low, high) in enumerate(itertools.pairwise(bounds)):
        yield QueueRows(topic, (turn * slices + number) % nums, rows.part(slice(low, high)))


def _topics(rows: Rows, topic: str | None) -> pa.StringArray:
    if not rows.has("topic"):
        return pa.repeat(topic, len(rows))
    topics = rows.text("topic")
    if topic is not None:
        topics = topics.fill_null(topic)
    if topics.null_count:
        raise ColumnError(
            f"column topic is null in {rows.where(first_true(topics.is_null()))}; fill it, or set "
            "option topic"
        )
    return topics


def _queue_ids(rows: Rows, nums: NDArray[np.int64], turn: int) -> NDArray[np.int64]:
    """Of each row: its queueId, else its messageGroup's queue, else the next in turn."""
    count = len(rows)
    queue_ids = (turn + np.arange(count) * (count // ROWS_PER_QUEUE_MIN + 1) // count) % nums
    if rows.has("messageGroup"):
        groups = rows.text("messageGroup").fill_null("")
        grouped = pc.not_equal(groups, "").to_numpy(zero_copy_only=False)
        hashes = np.abs(java_hashes(groups).astype(np.int64))
        queue_ids = np.where(grouped, hashes % nums, queue_ids)
    if rows.has("queueId"):
        column = rows.batch.column("queueId").cast(pa.int64())
        given = column.fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = (given < -1) | (given >= nums)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ColumnError(
                f"column queueId is {given[row]} in {rows.where(row)}; "
                f"its topic has queues 0 to {nums[row] - 1}"
            )
        queue_ids = np.where(given >= 0, given, queue_ids)
    chosen: NDArray[np.int64] = queue_ids.astype(np.int64)
    return chosen
