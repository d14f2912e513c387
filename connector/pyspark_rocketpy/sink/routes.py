"""Routing of rows to topics and queues.

A topic's queues are numbered over all its brokers: see WriteQueues. A row with a queueId goes to
that queue, at the broker of its brokerName if there are several. Rows of one messageGroup go to one
queue, by the group's hash and the topic's number of queues. So a changed number of queues moves
groups. Only readers that finish the old queue first keep the order over such a change. All other
rows are spread over every queue. KnownQueues keeps the topics' queues for a task.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.options.specs import TOPIC_ACCEPTED, TOPIC_NAME
from pyspark_rocketpy.sink.delays import DELAY_BITS, delays_of
from pyspark_rocketpy.sink.rows import Rows, first_true
from pyspark_rocketpy.transport.interface import BlockWriter
from pyspark_rocketpy.transport.write_values import BatchName, WriteQueues
from rocketpy_proto.record import java_hashes

# The rows for each queue, in a task's batches after its first.
ROWS_PER_QUEUE_MIN = 5_000
QUEUE_ID_BITS = 32


Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowRoutes:
    """Routes of n rows: row i goes to queue `queue_ids[i]` of `topics[codes[i]]`.

    `delays` are the results of `delays_of`: rows of one queue with different delays are sent in
    different blocks.
    """

    topics: Sequence[str]
    codes: Counts
    queue_ids: Counts
    delays: Counts

    def part(self, which: slice | Counts) -> RowRoutes:
        """Returns the routes of some rows, or of all in another order."""
        return RowRoutes(self.topics, self.codes[which], self.queue_ids[which], self.delays[which])

    @property
    def keys(self) -> Counts:
        """A number for each row, the same for rows of the same queue with the same delay."""
        return ((self.codes << DELAY_BITS | self.delays) << QUEUE_ID_BITS) | self.queue_ids

    @property
    def topic(self) -> str | pa.DictionaryArray:
        """The topic, or the rows' topics if there are several."""
        if len(self.topics) == 1:
            return self.topics[0]
        return pa.DictionaryArray.from_arrays(self.codes, self.topics)


class KnownQueues:
    """The topics' queues for writing; a task requests each topic once."""

    def __init__(self, writer: BlockWriter) -> None:
        self._writer = writer
        self._known: dict[str, WriteQueues] = {}

    def of(self, topics: Sequence[str]) -> list[WriteQueues]:
        """Returns the queues of each topic. Raises BrokerError for a topic that does not exist."""
        missing = [topic for topic in topics if topic not in self._known]
        if missing:
            self._known |= self._writer.write_queues(missing)
        return [self._known[topic] for topic in topics]


class Spread:
    """Choice of queues for rows that name neither queue nor group, over one task's batches.

    The first batch goes to all queues of its topic, so that even few rows reach them all. A later
    batch goes to one queue for each ROWS_PER_QUEUE_MIN rows, starting after the last batch's
    queues.
    """

    def __init__(self, batch: BatchName, partition: int) -> None:
        # The same for a batch that is written again, and different for most other batches.
        self._next = zlib.crc32(f"{batch.writer_id} {batch.batch_id}".encode()) + partition
        self._is_first = True

    def slice_counts(self, totals: Counts, nums: Counts) -> Counts:
        """Returns the number of queues for `totals` rows of a topic with `nums` queues."""
        filled = nums if self._is_first else np.maximum(totals // ROWS_PER_QUEUE_MIN, 1)
        return np.minimum(np.minimum(filled, nums), totals)

    def queue_ids(self, number: Counts, nums: Counts) -> Counts:
        """Returns the queue of a batch's slice."""
        return (self._next + number) % nums

    def advance(self, slice_count: int) -> None:
        """Moves past the queues of a batch."""
        self._next += slice_count
        self._is_first = False


def routes_of(rows: Rows, topic: str | None, known: KnownQueues, spread: Spread) -> RowRoutes:
    """Returns the routes of the rows.

    `topic` is for rows that name none. Raises ColumnError, BrokerError, ConnectionFailedError.
    """
    topics = _topics(rows, topic)
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy().astype(np.int64)
    queues = known.of(names)
    nums = np.array([each.count for each in queues], np.int64)[codes]
    queue_ids = _spread_ids(codes, nums, spread)
    if rows.has("messageGroup"):
        queue_ids = _of_groups(rows, nums, queue_ids)
    if rows.has("queueId"):
        queue_ids = _of_columns(rows, codes, queues, queue_ids)
    return RowRoutes(names, codes, queue_ids, delays_of(rows))


def _spread_ids(topics: Counts, nums: Counts, spread: Spread) -> Counts:
    """Returns each row's queue if its topic's rows are spread; `topics` are numbers."""
    order = np.argsort(topics, kind="stable")
    totals = np.bincount(topics)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(topics)) - (np.cumsum(totals) - totals)[topics[order]]
    row_totals = totals[topics]
    counts = spread.slice_counts(row_totals, nums)
    queue_ids = spread.queue_ids(ranks * counts // row_totals, nums)
    spread.advance(int(counts.max()))
    return queue_ids


def _topics(rows: Rows, topic: str | None) -> pa.DictionaryArray:
    if not rows.has("topic"):
        assert topic is not None, "the options were checked when the write was planned"
        return pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), [topic])
    topics = rows.text("topic")
    if topic is not None:
        topics = topics.fill_null(topic)
    if topics.null_count:
        raise ColumnError(
            f"column topic is null in {rows.where(first_true(topics.is_null()))}; fill it, or set "
            "option topic"
        )
    distinct = topics.dictionary_encode()
    for code, name in enumerate(distinct.dictionary.to_pylist()):
        if TOPIC_NAME.fullmatch(name) is None:
            row = int(np.argmax(distinct.indices.to_numpy() == code))
            raise ColumnError(
                f"column topic is {name!r} in {rows.where(row)}; accepted: {TOPIC_ACCEPTED}"
            )
    return distinct


def _of_groups(rows: Rows, nums: Counts, queue_ids: Counts) -> Counts:
    """Returns the queue of each row's messageGroup, else the one of `queue_ids`."""
    groups = rows.text("messageGroup").fill_null("")
    grouped = pc.not_equal(groups, "").to_numpy(zero_copy_only=False)
    hashes = np.abs(java_hashes(groups).astype(np.int64))
    return np.where(grouped, hashes % nums, queue_ids)


def _of_columns(
    rows: Rows, topics: Counts, queues: Sequence[WriteQueues], queue_ids: Counts
) -> Counts:
    """Returns the queue of each row's queueId and brokerName, else the one of `queue_ids`.

    `topics` are numbers. The loop is over the existing pairs of topics and brokers.
    """
    column = rows.batch.column("queueId").cast(pa.int64())
    given = column.fill_null(0).to_numpy(zero_copy_only=False)
    is_given = column.is_valid().to_numpy(zero_copy_only=False)
    names, brokers = _brokers(rows)
    pairs = topics * len(names) + brokers
    numbers = [range(0)] * (len(queues) * len(names))
    for pair in np.flatnonzero(np.bincount(pairs[is_given])).tolist():
        topic, broker = divmod(pair, len(names))
        found = queues[topic].at(names[broker])
        if found is None:
            row = int(np.argmax((pairs == pair) & is_given))
            raise _no_such_broker(rows, row, names[broker], queues[topic])
        numbers[pair] = found
    firsts = np.array([each.start for each in numbers], np.int64)[pairs]
    nums = np.array([len(each) for each in numbers], np.int64)[pairs]
    wrong = is_given & ((given < 0) | (given >= nums))
    if wrong.any():
        row = int(np.argmax(wrong))
        name = names[brokers[row]]
        raise ColumnError(
            f"column queueId is {given[row]} in {rows.where(row)}; its topic has queues 0 to "
            f"{nums[row] - 1}{f' at broker {name}' if name else ''}: set one of them, or null to "
            "let the sink choose"
        )
    return np.where(is_given, firsts + given, queue_ids)


def _brokers(rows: Rows) -> tuple[list[str], Counts]:
    """Returns the distinct names of brokers, and each row's index of them; "" for null."""
    if not rows.has("brokerName"):
        return [""], np.zeros(len(rows), np.int64)
    names = rows.text("brokerName").fill_null("").dictionary_encode()
    return names.dictionary.to_pylist(), names.indices.to_numpy().astype(np.int64)


def _no_such_broker(rows: Rows, row: int, name: str, queues: WriteQueues) -> ColumnError:
    known = ", ".join(queues.nums)
    if not name:
        return ColumnError(
            f"column queueId is set in {rows.where(row)}, but column brokerName is not, and its "
            f"topic has queues at several brokers ({known}); set both, or none"
        )
    if not known:
        return ColumnError(
            f"column brokerName is {name!r} in {rows.where(row)}, but the broker of option "
            "endpoints has no name; drop the column"
        )
    return ColumnError(
        f"column brokerName is {name!r} in {rows.where(row)}; its topic now has write queues at "
        f"{known}; drop columns queueId and brokerName to let the sink choose"
    )
