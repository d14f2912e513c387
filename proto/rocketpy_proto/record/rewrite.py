"""Rewriting of a block's records: other topic and properties.

Bodies and hosts stay unchanged. The broker stores a waiting message under a topic of its own, and
later under its real topic. Functions work on whole blocks, without a loop over messages. Properties
are a binary column, in which a regular expression finds names. Source: docs/design/storage.md
sections 2.1, 3.1, 13 and 14.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record.block.encode import check_properties_bytes, fixed_width
from rocketpy_proto.record.block.ranges import binary_ranges, offsets_of
from rocketpy_proto.record.block.record_block import RecordBlock, scatter_headers
from rocketpy_proto.record.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketpy_proto.record.single import encode_topic

_NAME_END = bytes([NAME_VALUE_SEPARATOR])
_VALUE_END = bytes([PROPERTY_SEPARATOR])


def properties_strings(block: RecordBlock) -> pa.BinaryArray:
    """Returns the properties string of each record; each entry ends with its separator."""
    starts = block.properties_start
    strings = binary_ranges(block.data, starts, starts + block.properties_length)
    filled = pc.greater(pc.binary_length(strings), 0)
    is_open = pc.and_(filled, pc.invert(pc.ends_with(strings, _VALUE_END)))
    if not pc.any(is_open).as_py():
        return strings
    ends = pc.if_else(is_open, pa.scalar(_VALUE_END), pa.scalar(b""))
    return pc.binary_join_element_wise(strings, ends, pa.scalar(b""))


def without_properties(strings: pa.BinaryArray, names: Iterable[str]) -> pa.BinaryArray:
    """Returns the strings without the entries of these names."""
    alternatives = "|".join(re.escape(name) for name in names)
    # An entry is at the start, or follows a separator, which stays.
    pattern = rf"(^|\x02)(?:(?:{alternatives})\x01[^\x02]*\x02)+"
    return pc.replace_substring_regex(strings, pattern, rb"\1".decode())


def with_property(
    strings: pa.BinaryArray, name: str, values: str | pa.StringArray
) -> pa.BinaryArray:
    """Returns the strings with this entry at the end, replacing entries of its name.

    Null values add no entry.
    """
    kept = without_properties(strings, [name])
    head, tail, nothing = pa.scalar(name.encode() + _NAME_END), pa.scalar(_VALUE_END), b""
    if isinstance(values, str):
        entries: pa.Scalar | pa.Array = pa.scalar(
            name.encode() + _NAME_END + values.encode() + _VALUE_END
        )
    else:
        octets = values.cast(pa.binary())
        entries = pc.binary_join_element_wise(head, octets, tail, pa.scalar(nothing))
        entries = entries.fill_null(nothing)
    return pc.binary_join_element_wise(kept, entries, pa.scalar(nothing))


def rewritten(
    block: RecordBlock,
    topic: str,
    properties: pa.BinaryArray,
    fields: Mapping[str, NDArray[np.integer] | int] | None = None,
) -> RecordBlock:
    """Returns the records with this topic, these properties and fields, in a writable buffer.

    `properties` has n values; `fields` are of the header. Raises UnencodableRecordError.
    """
    encoded = encode_topic(topic)
    tail = encoded.length + encoded.encoded
    lengths = np.diff(offsets_of(properties)).astype(np.int64)
    check_properties_bytes(lengths)
    body_end = block.body_start + block.body_length
    sizes = body_end - block.positions + len(tail) + 2 + lengths
    header = block.header.copy()
    for name, values in (fields or {}).items():
        header[name] = values
    header["total_size"], header["magic"] = sizes, encoded.magic
    joined = pc.binary_join_element_wise(
        binary_ranges(block.data, block.positions, body_end),
        pa.scalar(tail),
        fixed_width(lengths.astype(">i2")),
        properties,
        pa.scalar(b""),
    )
    ends = np.cumsum(sizes)
    data = bytearray(memoryview(joined.buffers()[2] or b"")[: int(sizes.sum())])
    scatter_headers(np.frombuffer(data, np.uint8), ends - sizes, header)
    return RecordBlock.parse(data, sizes.astype(np.int32))
