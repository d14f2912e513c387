"""Arrow columns of a block: the rows for Spark.

Only the columns of the requested schema are decoded. Source: docs/design/storage.md sections 2 to
5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.model.column_types import COLUMN_TYPES, TIMESTAMP
from rocketpy_proto.record.block.arrays import array_of, repeated, strings_of
from rocketpy_proto.record.block.properties_block import (
    BlockProperties,
    find_entries,
    parse_properties,
)
from rocketpy_proto.record.block.ranges import (
    binary_ranges,
    filled_lists,
    fixed_width_strings,
    hex_digits,
    to_strings,
)
from rocketpy_proto.record.block.record_block import RecordBlock
from rocketpy_proto.record.compression import (
    INFLATED_TOGETHER_BYTES_MAX,
    Bodies,
    inflated_bodies,
)
from rocketpy_proto.record.errors import MalformedRecordError
from rocketpy_proto.record.hosts import Host
from rocketpy_proto.record.layout import HOST_V4_BYTES, HOST_V6_BYTES
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
from rocketpy_proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

# The range of times that pandas holds in nanoseconds, and so Spark and Python: from 1678 on, before
# 2262. Times outside are null.
TIMES_MS = (
    int(np.datetime64("1678-01-01", "ms").astype(np.int64)),
    int(np.datetime64("2262-01-01", "ms").astype(np.int64)),
)
_OF_BODIES = frozenset({"body", "bodyError"})
_MICROSECONDS = 1000


def to_record_batches(block: RecordBlock, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the columns of `schema` (any of COLUMN_TYPES, in any order), one row per record.

    There is one batch, unless inflated bodies exceed INFLATED_TOGETHER_BYTES_MAX. The ends of
    batches depend on the records alone. Raises KeyError for a column outside of COLUMN_TYPES.
    """
    if _OF_BODIES.isdisjoint(schema.names):
        yield _decoded(_Decoder(block), schema)
        return
    for bodies in inflated_bodies(block):
        is_whole = len(block) == bodies.end - bodies.begin
        part = block if is_whole else block.filter(slice(bodies.begin, bodies.end))
        yield _decoded(_Decoder(part, bodies), schema)


def to_record_batch(block: RecordBlock, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the columns of `schema` in one batch, one row per record.

    Raises KeyError as `to_record_batches` does, and MalformedRecordError if it yields several
    batches.
    """
    batches = to_record_batches(block, schema)
    batch = next(batches)
    if next(batches, None) is not None:
        reason = f"bodies inflate to more than {INFLATED_TOGETHER_BYTES_MAX} bytes together"
        raise MalformedRecordError(reason, index=len(batch))
    return batch


def _decoded(decoder: _Decoder, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_BY_NAME[field.name](decoder).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def property_columns(block: RecordBlock, names: Iterable[str]) -> dict[str, pa.StringArray]:
    """Returns the `property_column` of each name, without reading the values of other names.

    No name may be empty or hold a NUL.
    """
    entries = find_entries(block.data, block.properties_start, block.properties_length)
    return {name: entries.values_of(name, len(block)) for name in names}


def property_column(block: RecordBlock, name: str) -> pa.StringArray:
    """Returns the value of one property in each record, null if absent."""
    return _Decoder(block).named(name)


class _Decoder:
    """A decoder of one block; it decodes values that several columns need once."""

    def __init__(self, block: RecordBlock, bodies: Bodies | None = None) -> None:
        """Keeps the block; `bodies` are needed for the columns that show them."""
        self._block = block
        self._bodies = bodies
        self._header = block.header

    @cached_property
    def _properties(self) -> BlockProperties:
        block = self._block
        return parse_properties(block.data, block.properties_start, block.properties_length)

    def topic(self) -> pa.Array:
        block = self._block
        single = block.single_topic()
        if single is not None:
            return repeated(single, len(block))
        ends = block.topic_start + block.topic_length
        return to_strings(binary_ranges(block.data, block.topic_start, ends))

    def body(self) -> pa.Array:
        assert self._bodies is not None
        return self._bodies.values

    def body_error(self) -> pa.Array:
        assert self._bodies is not None
        return self._bodies.errors

    def number(self, name: str, kind: type[np.integer]) -> pa.Array:
        return array_of(self._header[name].astype(kind))

    def timestamp(self, name: str) -> pa.Array:
        milliseconds = self._header[name].astype(np.int64)
        outside = (milliseconds < TIMES_MS[0]) | (milliseconds >= TIMES_MS[1])
        valid = ~outside if outside.any() else None
        return array_of(milliseconds * _MICROSECONDS, TIMESTAMP, valid)

    def named(self, name: str) -> pa.Array:
        return self._properties.column(name)

    def keys(self) -> pa.Array:
        return _split_keys(self._properties.column(KEYS))

    def properties(self) -> pa.Array:
        return self._properties.map_column()

    def message_id(self) -> pa.Array:
        unique = self._properties.column(UNIQ_KEY)
        return unique if unique.null_count == 0 else pc.coalesce(unique, self.offset_message_id())

    def offset_message_id(self) -> pa.Array:
        host = self._host_octets("store_host")
        offset = np.ascontiguousarray(self._header["physical_offset"]).view(np.uint8)
        offset = offset.reshape(len(self._block), 8)
        short = _hex_strings(np.hstack((host[:, :HOST_V4_BYTES], offset)))
        v6 = self._is_v6(STORE_HOST_V6)
        if not v6.any():
            return short
        return pc.if_else(array_of(v6), _hex_strings(np.hstack((host, offset))), short)

    def host(self, name: str, v6_bit: int) -> pa.Array:
        """Returns the hosts as texts; each distinct host is formatted once.

        If all hosts are distinct, each record costs 2 us.
        """
        octets = self._host_octets(name)
        v6 = self._is_v6(v6_bit)
        tagged = np.hstack((octets, v6.astype(np.uint8)[:, None]))
        fixed = pa.Array.from_buffers(
            pa.binary(tagged.shape[1]), len(tagged), [None, pa.py_buffer(tagged.tobytes())]
        )
        encoded = fixed.dictionary_encode()
        texts = [_host_text(value) for value in encoded.dictionary.to_pylist()]
        return strings_of(texts).take(encoded.indices)

    def _host_octets(self, name: str) -> NDArray[np.uint8]:
        hosts = np.ascontiguousarray(self._header[name])
        return hosts.view(np.uint8).reshape(len(self._block), hosts.dtype.itemsize)

    def _is_v6(self, bit: int) -> NDArray[np.bool_]:
        is_v6: NDArray[np.bool_] = (self._header["sys_flag"].astype(np.int32) & bit) != 0
        return is_v6


def _host_text(tagged: bytes) -> str:
    return str(Host.from_bytes(tagged[: HOST_V6_BYTES if tagged[-1] else HOST_V4_BYTES]))


def _hex_strings(octets: NDArray[np.uint8]) -> pa.StringArray:
    return fixed_width_strings(hex_digits(octets))


def _split_keys(keys: pa.Array) -> pa.Array:
    """Returns the non-empty tokens between blanks; null for a record without keys."""
    return filled_lists(pc.split_pattern(keys, KEY_SEPARATOR))


_BY_NAME: Mapping[str, Callable[[_Decoder], pa.Array]] = {
    "topic": _Decoder.topic,
    "queueId": lambda decoder: decoder.number("queue_id", np.int32),
    "queueOffset": lambda decoder: decoder.number("queue_offset", np.int64),
    "body": _Decoder.body,
    "tags": lambda decoder: decoder.named(TAGS),
    "keys": _Decoder.keys,
    "properties": _Decoder.properties,
    "msgId": _Decoder.message_id,
    "offsetMsgId": _Decoder.offset_message_id,
    "bornTimestamp": lambda decoder: decoder.timestamp("born_timestamp"),
    "storeTimestamp": lambda decoder: decoder.timestamp("store_timestamp"),
    "bornHost": lambda decoder: decoder.host("born_host", BORN_HOST_V6),
    "storeHost": lambda decoder: decoder.host("store_host", STORE_HOST_V6),
    "reconsumeTimes": lambda decoder: decoder.number("reconsume_times", np.int32),
    "sysFlag": lambda decoder: decoder.number("sys_flag", np.int32),
    "commitLogOffset": lambda decoder: decoder.number("physical_offset", np.int64),
    "messageGroup": lambda decoder: decoder.named(SHARDING_KEY),
    "bodyError": _Decoder.body_error,
}
assert _BY_NAME.keys() == COLUMN_TYPES.keys()
