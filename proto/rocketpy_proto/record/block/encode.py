"""Encoding of a block from Arrow columns.

Each record's parts (fixed part, body, topic, properties) are columns of binary values. Arrow joins
them row by row, without a loop over messages. The joined column's data buffer is the block. Source:
docs/design/storage.md sections 2.1, 2.4 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record.block.encode_properties import encode_property_column
from rocketpy_proto.record.block.ranges import octets_of, offsets_of
from rocketpy_proto.record.crc import body_crcs
from rocketpy_proto.record.errors import UnencodableRecordError
from rocketpy_proto.record.hosts import UNKNOWN_HOST, Host
from rocketpy_proto.record.layout import BLOCK_BYTES_MAX, HEADER_BY_SHAPE, PROPERTIES_BYTES_MAX
from rocketpy_proto.record.single import encode_topic
from rocketpy_proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """n messages as columns: arrays have n rows, a plain value applies to all rows.

    `tags`, `keys`, `extra` and `properties` become properties, in the order TAGS, KEYS, extra, the
    map. A list of keys is joined with blanks. `tags` and `keys` win over `extra` of the same name.
    A column's value wins over an entry of the map. Null and empty values are left out, and so are
    entries of the map with names in `left_out`. `encoded_properties` replaces all of them.
    """

    body: pa.Array
    topic: str | pa.StringArray
    queue_id: int | pa.Int32Array
    tags: pa.StringArray | None = None
    keys: pa.StringArray | pa.ListArray | None = None
    properties: pa.MapArray | None = None
    extra: Mapping[str, pa.StringArray | str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    born_timestamp_ms: int | pa.Int64Array = 0
    born_host: Host = UNKNOWN_HOST
    store_host: Host = UNKNOWN_HOST
    sys_flag: int = 0
    flag: int | pa.Int32Array = 0
    encoded_properties: pa.BinaryArray | None = None


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """The block's bytes, and the size of each record in it (n int32)."""

    data: pa.Buffer
    sizes: NDArray[np.int32]

    def take(self, order: NDArray[np.int64]) -> EncodedBlock:
        """Returns copies of the records with these indexes, in the order of the indexes."""
        offsets = pa.py_buffer(np.concatenate(([0], np.cumsum(self.sizes))).astype(np.int32))
        count = len(self.sizes)
        records = pa.Array.from_buffers(pa.binary(), count, [None, offsets, self.data])
        data = records.take(pa.array(order)).buffers()[2] or pa.py_buffer(b"")
        return EncodedBlock(data, self.sizes[order])


@dataclass(frozen=True, slots=True)
class _Topics:
    """Each row's magic, and its topic after its length (one value, or a column)."""

    magic: int | NDArray[np.uint32]
    tails: pa.Scalar | pa.BinaryArray
    tail_bytes: int | NDArray[np.int64]


class CheckedBlock:
    """n messages that can be encoded, checked before any large copy.

    `sizes` has the size of each record (n int32).
    """

    def __init__(self, columns: BlockColumns) -> None:
        """Raises UnencodableRecordError, which names row and field."""
        self._body = _bodies(columns.body)
        self._topics = _topics(columns.topic)
        self._properties = _properties(columns, len(self._body))
        self._properties_bytes = np.diff(offsets_of(self._properties)).astype(np.int64)
        check_properties_bytes(self._properties_bytes)
        self._header = _headers(columns, self._body, self._topics)
        body_bytes = self._header["body_length"].astype(np.int64)
        beside_bytes = self._topics.tail_bytes + 2 + self._properties_bytes
        sizes = self._header.dtype.itemsize + body_bytes + beside_bytes
        if sizes.sum() > BLOCK_BYTES_MAX:
            raise UnencodableRecordError(
                "block",
                int(sizes.sum()),
                f"bytes are more than {BLOCK_BYTES_MAX}; send smaller blocks",
            )
        self._header["total_size"] = sizes
        self.sizes: NDArray[np.int32] = sizes.astype(np.int32)

    def encode(self) -> EncodedBlock:
        """Returns the records, in the order of the rows."""
        offsets = offsets_of(self._body).astype(np.int64)
        self._header["body_crc"] = body_crcs(octets_of(self._body), offsets[:-1], offsets[1:])
        joined = pc.binary_join_element_wise(
            fixed_width(self._header),
            self._body,
            self._topics.tails,
            fixed_width(self._properties_bytes.astype(">i2")),
            self._properties,
            pa.scalar(b""),
        )
        data = joined.buffers()[2] or pa.py_buffer(b"")
        return EncodedBlock(data.slice(0, int(self.sizes.sum(dtype=np.int64))), self.sizes)


def encode_block(columns: BlockColumns) -> EncodedBlock:
    """Encodes n messages. Raises UnencodableRecordError, which names row and field."""
    return CheckedBlock(columns).encode()


def check_properties_bytes(sizes: NDArray[np.int64]) -> None:
    """Raises UnencodableRecordError if properties of one of these sizes do not fit."""
    too_long = sizes > PROPERTIES_BYTES_MAX
    if too_long.any():
        row = int(np.argmax(too_long))
        reason = f"bytes of properties are more than {PROPERTIES_BYTES_MAX}"
        raise UnencodableRecordError("properties", int(sizes[row]), reason, row)


def _bodies(body: pa.Array) -> pa.BinaryArray:
    """Returns the bodies as binary with 32-bit offsets. Raises UnencodableRecordError for nulls."""
    _refuse_nulls("body", body)
    return body.cast(pa.binary())


def _properties(columns: BlockColumns, count: int) -> pa.BinaryArray:
    if columns.encoded_properties is not None:
        return columns.encoded_properties
    return encode_property_column(
        columns.tags, columns.keys, columns.extra, columns.properties, count, columns.left_out
    )


def _topics(topic: str | pa.StringArray) -> _Topics:
    if isinstance(topic, str):
        encoded = encode_topic(topic)
        tail = encoded.length + encoded.encoded
        return _Topics(encoded.magic, pa.scalar(tail), len(tail))
    _refuse_nulls("topic", topic)
    dictionary = topic.dictionary_encode()
    rows = dictionary.indices.to_numpy()
    distinct = []
    for code, name in enumerate(dictionary.dictionary.to_pylist()):
        try:
            distinct.append(encode_topic(name))
        except UnencodableRecordError as error:
            row = int(np.argmax(rows == code))
            raise UnencodableRecordError("topic", name, error.reason, row) from error
    tails = pa.array([one.length + one.encoded for one in distinct], pa.binary())
    column = tails.take(dictionary.indices)
    magic = np.array([one.magic for one in distinct], np.uint32)[rows]
    return _Topics(magic, column, np.diff(offsets_of(column)).astype(np.int64))


def _headers(columns: BlockColumns, body: pa.BinaryArray, topics: _Topics) -> NDArray[np.void]:
    """Returns the fixed part of each row, without its total size and its body's CRC."""
    born, store = columns.born_host, columns.store_host
    header = np.zeros(len(body), HEADER_BY_SHAPE[born.is_v6, store.is_v6])
    sys_flag = columns.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 * born.is_v6 | STORE_HOST_V6 * store.is_v6
    header["magic"] = topics.magic
    _set_numbers(header, "queue_id", columns.queue_id)
    _set_numbers(header, "flag", columns.flag)
    _set_numbers(header, "sys_flag", sys_flag)
    _set_numbers(header, "born_timestamp", columns.born_timestamp_ms)
    header["born_host"] = np.void(born.to_bytes())
    header["store_host"] = np.void(store.to_bytes())
    header["body_length"] = np.diff(offsets_of(body))
    return header


def _set_numbers(header: NDArray[np.void], name: str, values: int | pa.Array) -> None:
    """Fills a field; raises for a value out of range, since numpy would change it silently."""
    bounds = np.iinfo(header.dtype[name])
    if isinstance(values, int):
        if not bounds.min <= values <= bounds.max:
            raise UnencodableRecordError(name, values, f"does not fit in {bounds.bits} bits")
        header[name] = values
        return
    if len(values) != len(header):
        raise UnencodableRecordError(name, len(values), f"rows for {len(header)} bodies")
    _refuse_nulls(name, values)
    numbers = values.to_numpy(zero_copy_only=False)
    wrong = (numbers < bounds.min) | (numbers > bounds.max)
    if wrong.any():
        row = int(np.argmax(wrong))
        reason = f"does not fit in {bounds.bits} bits"
        raise UnencodableRecordError(name, int(numbers[row]), reason, row)
    header[name] = numbers


def _refuse_nulls(field: str, column: pa.Array) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise UnencodableRecordError(field, None, "is null; set it in every message", row)


def fixed_width(values: NDArray[np.generic]) -> pa.BinaryArray:
    """Returns items of equal size as a binary column, copied."""
    count, size = len(values), values.dtype.itemsize
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int64)
    assert offsets[-1] <= BLOCK_BYTES_MAX, "no block is larger"
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values.tobytes())]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
