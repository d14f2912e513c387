"""Dispatch of log records to consume queue units and index entries.

A `DispatchRequest` has the units of one block for one queue. Live appends know their queue and make
one request. Recovery reads log spans with many topics and makes one request per queue. Recovery
dispatches again what a crash left undispatched.
Source: docs/design/storage.md sections 6.1 and 10.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.queues.slices import QueueSlice
from rocketpy_broker.store.queues.units import UNIT, Units
from rocketpy_broker.store.values import PutCause, QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import COLUMN_TYPES, RecordBlock, has_queue_offset, to_record_batch
from rocketpy_proto.record.index_keys import IndexKeys, TagsAndKeys
from rocketpy_proto.record.sys_flag import has_transactions

TOPIC_SCHEMA = pa.schema([pa.field("topic", COLUMN_TYPES["topic"], nullable=False)])


# As `first_number`: the records already have their mark of origin (see `batch_marks`) and keep it.
KEEP_NUMBERS = -1
NO_KEYS = IndexKeys(np.empty(0, np.int32), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """Units of one queue for consecutive queue offsets from `queue_offset` on.

    `keys` are the index keys of a whole block. `key_offsets` are the physical offsets of all its
    records, also of prepared ones, which have no unit. `key_times_ms` are their store timestamps;
    None means the store timestamp of the append.
    """

    queue: QueueKey
    queue_offset: int
    units: Units
    keys: IndexKeys = NO_KEYS
    key_offsets: NDArray[np.int64] = field(default_factory=lambda: NO_KEYS.row)
    key_times_ms: NDArray[np.int64] | None = None

    def from_place(self, physical_offset: int) -> DispatchRequest | None:
        """Returns the units at or after a physical offset, without keys; None if there is none."""
        places = self.units["physical_offset"].astype(np.int64)
        first = int(np.searchsorted(places, physical_offset))
        if first == len(places):
            return None
        return DispatchRequest(self.queue, self.queue_offset + first, self.units[first:])


@dataclass(frozen=True, slots=True)
class AppendHints:
    """Knowledge about a block before its append.

    `found` are the tags codes and keys of its properties. `first_number` is its first record's mark
    of origin (see `batch_marks`): 0 for ordinary records, or KEEP_NUMBERS. `cause` is for the
    statistics. `is_joined` means that a queue may occur more than once among its OWN_QUEUES.
    """

    found: TagsAndKeys | None = None
    first_number: int = 0
    cause: PutCause = PutCause.SENT
    is_joined: bool = False


NOTHING_KNOWN = AppendHints()


def block_requests(
    slices: Sequence[QueueSlice],
    block: RecordBlock,
    physical_offset: int,
    found: TagsAndKeys,
    levels: DelayLevels,
) -> list[DispatchRequest]:
    """Returns a request for each queue slice of the block at `physical_offset`.

    The last request has the index keys of the whole block.
    """
    codes = found.tags_codes
    if slices[0].queue.topic == SCHEDULE_TOPIC:
        codes = levels.due_codes(block, codes)
    units = _units(block, physical_offset, codes)
    offsets = units["physical_offset"].astype(np.int64)
    last = slices[-1]
    requests = [
        DispatchRequest(one.queue, one.queue_offset, units[one.begin : one.end])
        for one in slices[:-1]
    ]
    units, sys_flags = units[last.begin :], block.header["sys_flag"][last.begin :]
    if has_transactions(sys_flags):
        units = units[has_queue_offset(sys_flags)]
    keys = found.index_keys
    return [*requests, DispatchRequest(last.queue, last.queue_offset, units, keys, offsets)]


def _units(block: RecordBlock, physical_offset: int, tags_codes: NDArray[np.int64]) -> Units:
    units = np.empty(len(block), UNIT)
    units["physical_offset"] = block.positions + physical_offset
    units["size"] = block.sizes
    units["tags_code"] = tags_codes
    return units


def topics_of(block: RecordBlock) -> pa.DictionaryArray:
    """Returns the topic of each record."""
    single = block.single_topic()
    if single is not None:
        return pa.DictionaryArray.from_arrays(np.zeros(len(block), np.int32), [single])
    return to_record_batch(block, TOPIC_SCHEMA).column(0).dictionary_encode()


def requests_of(
    block: RecordBlock,
    topics: pa.DictionaryArray,
    tags_codes: NDArray[np.int64],
    physical_offset: int,
    levels: DelayLevels,
) -> Iterator[DispatchRequest]:
    """Yields requests for a block of any topics and queues, in log order within each queue.

    Prepared and rolled back records have no place in a queue and are left out.
    """
    units = _units(block, physical_offset, tags_codes)
    waiting = topics.dictionary.index(SCHEDULE_TOPIC).as_py()
    if waiting >= 0:
        delayed = topics.indices.to_numpy() == waiting
        codes = units["tags_code"].astype(np.int64)
        units["tags_code"] = np.where(delayed, levels.due_codes(block, codes), codes)
    queue_ids = block.header["queue_id"].astype(np.int64)
    queue_offsets = block.header["queue_offset"].astype(np.int64)
    keys = (topics.indices.to_numpy().astype(np.int64) << 32) | queue_ids
    listed = np.flatnonzero(has_queue_offset(block.header["sys_flag"]))
    # A stable sort: within a queue the log's order is the order of its offsets.
    order = listed[np.argsort(keys[listed], kind="stable")]
    # A request ends where the queue changes or an offset does not follow the previous one.
    ends = (np.diff(keys[order]) != 0) | (np.diff(queue_offsets[order]) != 1)
    for rows in np.split(order, np.flatnonzero(ends) + 1):
        if len(rows) > 0:
            topic = topics.dictionary[int(topics.indices[int(rows[0])].as_py())].as_py()
            key = QueueKey(topic, int(queue_ids[rows[0]]))
            yield DispatchRequest(key, int(queue_offsets[rows[0]]), units[rows])
