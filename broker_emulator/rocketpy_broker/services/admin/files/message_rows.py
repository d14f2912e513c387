"""Conversion of message file rows to record blocks.

No loop runs over messages. The codec encodes the fields that a producer may set. This module sets
the header fields that only a broker sets and that a copy of a message must keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import (
    BLANK_BYTES,
    BlockColumns,
    EncodedBlock,
    Host,
    RecordBlock,
    encode_block,
)
from rocketpy_proto.record.block.masks import null_where
from rocketpy_proto.record.errors import UnencodableRecordError
from rocketpy_proto.record.hosts import UNKNOWN_HOST
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
from rocketpy_proto.record.sys_flag import (
    COMPRESSED,
    COMPRESSION_MASK,
    MULTI_TAGS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class QueueRows:
    """Rows of one queue, in file order; `rows` are row numbers of the batch."""

    queue: QueueKey
    rows: NDArray[np.int64]


def by_queue(batch: pa.RecordBatch, topic: str | None, now_ms: int) -> Iterator[_Encoder]:
    """Yields an encoder for the rows of each queue; `topic` overrides the column.

    Raises UnencodableRecordError for a row without a topic or with an invalid queue id.
    """
    for group in _groups(batch, topic):
        yield _Encoder(batch.take(pa.array(group.rows)), group, now_ms)


def _groups(batch: pa.RecordBatch, topic: str | None) -> Iterator[QueueRows]:
    if len(batch) == 0:
        return
    topics = pa.repeat(topic, len(batch)) if topic is not None else batch.column("topic")
    encoded = topics.dictionary_encode()
    if encoded.null_count:
        row = int(np.argmax(encoded.is_null().to_numpy(zero_copy_only=False)))
        raise UnencodableRecordError("topic", None, "is null; every message needs one", row)
    queue_ids = np.zeros(len(batch), np.int64)
    if "queueId" in batch.schema.names:
        column = batch.column("queueId")
        queue_ids = column.fill_null(-1).to_numpy().astype(np.int64)
        if (queue_ids < 0).any():
            row = int(np.argmax(queue_ids < 0))
            value = column[row].as_py()
            raise UnencodableRecordError("queueId", value, "is not 0 or more", row)
    keys = encoded.indices.to_numpy().astype(np.int64) << 32 | queue_ids
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        name = encoded.dictionary[int(keys[rows[0]] >> 32)].as_py()
        yield QueueRows(QueueKey(name, int(queue_ids[rows[0]])), rows)


class _Encoder:
    """An encoder for the rows of one queue."""

    def __init__(self, batch: pa.RecordBatch, group: QueueRows, now_ms: int) -> None:
        self.queue = group.queue
        self._rows = group.rows
        self._batch = batch
        self._now_ms = now_ms

    def blocks(self, segment_bytes: int) -> Iterator[RecordBlock]:
        """Yields the records in blocks that fit a log segment, in writable buffers.

        Raises UnencodableRecordError with the row number of the batch.
        """
        try:
            hosts = self._hosts()
            edges = np.flatnonzero(np.diff(hosts.is_v6)) + 1
            for rows in np.split(np.arange(len(self._batch)), edges):
                yield from self._run(rows, hosts, segment_bytes)
        except UnencodableRecordError as error:
            row = None if error.index is None else int(self._rows[error.index])
            raise UnencodableRecordError(error.field, error.value, error.reason, row) from error

    def _column(self, name: str) -> pa.Array | None:
        return self._batch.column(name) if name in self._batch.schema.names else None

    def _numbers(self, name: str) -> NDArray[np.int64]:
        column = self._column(name)
        if column is None:
            return np.zeros(len(self._batch), np.int64)
        numbers: NDArray[np.int64] = column.fill_null(0).to_numpy().astype(np.int64)
        return numbers

    def _hosts(self) -> _Hosts:
        column = self._column("bornHost")
        if column is None:
            column = pa.repeat(str(UNKNOWN_HOST), len(self._batch))
        encoded = column.fill_null(str(UNKNOWN_HOST)).dictionary_encode()
        codes = encoded.indices.to_numpy()
        hosts = []
        for code, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                hosts.append(Host.parse(text))
            except ValueError as error:
                row = int(np.argmax(codes == code))
                raise UnencodableRecordError("bornHost", text, f"is no host ({error})", row) from (
                    error
                )
        is_v6 = np.array([host.is_v6 for host in hosts], np.bool_)
        return _Hosts(hosts, codes, is_v6[codes])

    def _run(
        self, rows: NDArray[np.int64], hosts: _Hosts, segment_bytes: int
    ) -> Iterator[RecordBlock]:
        """Yields blocks for consecutive rows with born hosts of one kind, IPv4 or IPv6."""
        begin, count = int(rows[0]), len(rows)
        encoded = self._encoded(begin, count, hosts.hosts[hosts.codes[begin]])
        ends = np.cumsum(encoded.sizes.astype(np.int64))
        room = min(BLOCK_BYTES, segment_bytes - BLANK_BYTES)
        first = 0
        while first < count:
            start = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, start + room, "right")), first + 1)
            stop = int(ends[last - 1])
            if stop - start + BLANK_BYTES > segment_bytes:
                reason = f"bytes do not fit a log segment of {segment_bytes}"
                raise UnencodableRecordError("record", stop - start, reason, begin + first)
            data = bytearray(encoded.data[start:stop])
            block = RecordBlock.parse(data, encoded.sizes[first:last])
            self._set_header(block, slice(begin + first, begin + last), hosts)
            yield block
            first = last

    def _encoded(self, begin: int, count: int, host: Host) -> EncodedBlock:
        part = self._batch.slice(begin, count)
        born = part.column("bornTimestamp") if self._column("bornTimestamp") is not None else None
        try:
            return encode_block(
                BlockColumns(
                    body=part.column("body"),
                    topic=self.queue.topic,
                    queue_id=self.queue.queue_id,
                    born_timestamp_ms=self._now_ms
                    if born is None
                    else born.fill_null(self._now_ms),
                    born_host=host,
                    **_property_columns(part),
                )
            )
        except UnencodableRecordError as error:
            row = None if error.index is None else begin + error.index
            raise UnencodableRecordError(error.field, error.value, error.reason, row) from error

    def _set_header(self, block: RecordBlock, rows: slice, hosts: _Hosts) -> None:
        """Sets the header; the store's call of `RecordBlock.patch_stored` writes it to the records.

        Only flags that are true of the message in the file are kept. Prepared and rolled back
        messages are not exported. A body is no longer compressed, except a body with a `bodyError`,
        which is as it was stored.
        """
        header = block.header
        item = header.dtype["born_host"].itemsize
        table = b"".join(host.to_bytes().ljust(item, b"\0")[:item] for host in hosts.hosts)
        header["born_host"] = np.frombuffer(table, f"V{item}")[hosts.codes[rows]]
        header["reconsume_times"] = self._numbers("reconsumeTimes")[rows]
        flags = self._numbers("sysFlag")[rows]
        committed = flags & TRANSACTION_MASK == TRANSACTION_COMMIT
        kept = flags & MULTI_TAGS | np.where(committed, TRANSACTION_COMMIT, 0)
        errors = self._column("bodyError")
        if errors is not None:
            is_stored = errors.is_valid().to_numpy(zero_copy_only=False)[rows]
            kept |= np.where(is_stored, flags & (COMPRESSED | COMPRESSION_MASK), 0)
        header["sys_flag"] |= kept.astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Distinct hosts; `codes` are each row's index in them, `is_v6` its kind of address."""

    hosts: list[Host]
    codes: NDArray[np.int32]
    is_v6: NDArray[np.bool_]


class _PropertyColumns(TypedDict):
    tags: pa.StringArray | None
    keys: pa.StringArray | None
    properties: pa.MapArray | None
    extra: dict[str, pa.StringArray]


def _property_columns(batch: pa.RecordBatch) -> _PropertyColumns:
    """Returns the arguments of BlockColumns that become properties.

    A value that repeats the map's value is null, so that the map's order is kept.
    """
    names = batch.schema.names
    columns = {name: batch.column(name) if name in names else None for name in _PROPERTY_OF}
    if columns["msgId"] is not None and "offsetMsgId" in names:
        # A message without a unique key shows its offsetMsgId, which the import changes.
        is_place = pc.equal(columns["msgId"], batch.column("offsetMsgId")).fill_null(False)
        columns["msgId"] = null_where(is_place, columns["msgId"])
    if columns["keys"] is not None:
        columns["keys"] = _joined(columns["keys"])
    properties = batch.column("properties") if "properties" in names else None
    if properties is not None:
        for name, column in columns.items():
            if column is not None:
                columns[name] = _unless_same(column, properties, _PROPERTY_OF[name])
    extra = {_PROPERTY_OF[name]: columns[name] for name in ("msgId", "messageGroup")}
    return {
        "tags": columns["tags"],
        "keys": columns["keys"],
        "properties": properties,
        "extra": {name: column for name, column in extra.items() if column is not None},
    }


def _joined(keys: pa.ListArray) -> pa.StringArray:
    """Returns keys as in the property, separated by blanks, without nulls."""
    if keys.flatten().null_count:
        lists = [None if row is None else [key for key in row if key] for row in keys.to_pylist()]
        keys = pa.array(lists, keys.type)
    return pc.binary_join(keys, KEY_SEPARATOR)


def _unless_same(column: pa.StringArray, properties: pa.MapArray, name: str) -> pa.StringArray:
    """Returns the column with null where the map has an equal value; keys are compared by words."""
    known = pc.map_lookup(properties, name, "last")
    shown = column
    if name == KEYS:
        known, shown = (
            pc.utf8_trim(pc.replace_substring_regex(text, " +", " "), " ")
            for text in (known, column)
        )
    same = pc.equal(shown, known).fill_null(False)
    return null_where(same, column)


_PROPERTY_OF = {"tags": TAGS, "keys": KEYS, "msgId": UNIQ_KEY, "messageGroup": SHARDING_KEY}
