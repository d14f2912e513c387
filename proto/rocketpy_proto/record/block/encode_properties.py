"""Encoding of a block's properties from columns.

The order of a record's properties is TAGS, KEYS, the further columns, the map. Source:
docs/design/storage.md section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketpy_proto.record.block.ranges import filled_lists, octets_of, offsets_of
from rocketpy_proto.record.errors import UnencodableRecordError
from rocketpy_proto.record.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketpy_proto.record.properties import KEY_SEPARATOR, KEYS, TAGS, encode_property_name

_NAME_END = bytes([NAME_VALUE_SEPARATOR])
_VALUE_END = bytes([PROPERTY_SEPARATOR])


def encode_property_column(
    tags: pa.StringArray | None,
    keys: pa.StringArray | pa.ListArray | None,
    extra: Mapping[str, pa.StringArray | str],
    properties: pa.MapArray | None,
    count: int,
    left_out: Iterable[str] = (),
) -> pa.BinaryArray:
    """Returns the properties string of each of `count` rows. Raises UnencodableRecordError.

    Entries of the map with names in `left_out` are left out.
    """
    named: dict[str, pa.StringArray | None] = {TAGS: tags, KEYS: _joined_keys(keys)}
    for name, given in extra.items():
        if named.get(name) is None:
            named[name] = pa.repeat(given, count) if isinstance(given, str) else given
    columns = {name: _text(name, column) for name, column in named.items() if column is not None}
    pieces: list[pa.Array | pa.Scalar] = []
    for name, column in columns.items():
        pieces += _entry_pieces(name, column)
    if properties is not None:
        pieces.append(_map_entries(properties, columns, left_out))
    if not pieces:
        return pa.array([b""] * count, pa.binary())
    return pc.binary_join_element_wise(*pieces, pa.scalar(b""))


def _joined_keys(keys: pa.StringArray | pa.ListArray | None) -> pa.StringArray | None:
    if keys is None or not (pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type)):
        return keys
    lists = keys.cast(pa.list_(pa.string()))
    given = lists.flatten()
    parted = pc.match_substring(given, KEY_SEPARATOR).fill_null(False)
    if pc.any(parted).as_py():
        index = int(np.argmax(parted.to_numpy(zero_copy_only=False)))
        row = pc.list_parent_indices(lists)[index].as_py()
        reason = "has a blank, which separates keys; send it as several keys, or without the blank"
        raise UnencodableRecordError(KEYS, given[index].as_py(), reason, row)
    return pc.binary_join(filled_lists(lists), KEY_SEPARATOR)


def _text(field: str, column: pa.Array) -> pa.BinaryArray:
    """Returns the column's bytes. Raises UnencodableRecordError for a separator in a value."""
    encoded = _bytes_of(column)
    _refuse_separators(field, encoded)
    return encoded


def _bytes_of(column: pa.Array) -> pa.BinaryArray:
    return column.cast(pa.string()).cast(pa.binary())


def _refuse_separators(
    field: str, encoded: pa.BinaryArray, rows: NDArray[np.int64] | None = None
) -> None:
    """Raises UnencodableRecordError for a separator; `rows` has each value's message.

    Without `rows`, a value's index is its message.
    """
    offsets = offsets_of(encoded)
    if len(encoded) == 0:
        return
    octets = octets_of(encoded)[offsets[0] : offsets[-1]]
    separators = np.flatnonzero((octets - np.uint8(1)) < 2)
    if len(separators):
        place = separators[0] + offsets[0]
        index = int(np.searchsorted(offsets, place, "right")) - 1
        value = encoded[index].as_py().decode()
        row = index if rows is None else int(rows[index])
        raise UnencodableRecordError(field, value, "contains a separator (\\x01 or \\x02)", row)


def _filled(column: pa.BinaryArray) -> NDArray[np.bool_]:
    """Returns a mask of the values that are neither null nor empty."""
    lengths = np.diff(offsets_of(column))
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    filled: NDArray[np.bool_] = valid & (lengths > 0)
    return filled


def _entry_pieces(name: str, column: pa.BinaryArray) -> list[pa.Array | pa.Scalar]:
    """Returns name, value and separators as pieces of a join; a row without a value is empty."""
    head, tail = pa.scalar(encode_property_name(name) + _NAME_END), pa.scalar(_VALUE_END)
    filled = _filled(column)
    if filled.all():
        return [head, column, tail]
    entry = pc.binary_join_element_wise(head, column, tail, pa.scalar(b""))
    return [pc.if_else(pa.array(filled), entry, pa.scalar(b""))]


def _map_entries(
    properties: pa.MapArray, columns: Mapping[str, pa.BinaryArray], left_out: Iterable[str]
) -> pa.BinaryArray:
    """Returns the map's entries of each row, joined."""
    offsets = np.frombuffer(properties.buffers()[1], np.int32)
    bounds = offsets[properties.offset : properties.offset + len(properties) + 1].astype(np.int64)
    span = slice(bounds[0], bounds[-1])
    names, values = _bytes_of(properties.keys[span]), _bytes_of(properties.items[span])
    rows = np.repeat(np.arange(len(properties)), np.diff(bounds))
    kept = _filled(values) & ~_taken(names, rows, columns)
    kept &= properties.is_valid().to_numpy(zero_copy_only=False)[rows]
    if left_out:
        unwanted = pa.array([name.encode() for name in left_out], pa.binary())
        kept &= ~pc.is_in(names, unwanted).to_numpy(zero_copy_only=False)
    index = np.flatnonzero(kept)
    rows, names, values = rows[index], names.take(pa.array(index)), values.take(pa.array(index))
    _refuse_separators("property name", names, rows)
    _refuse_separators("property value", values, rows)
    unnamed = np.flatnonzero(np.diff(offsets_of(names)) == 0)
    if len(unnamed):
        raise UnencodableRecordError("property name", "", "is empty", int(rows[unnamed[0]]))
    entries = pc.binary_join_element_wise(
        names, pa.scalar(_NAME_END), values, _VALUE_END, pa.scalar(b"")
    )
    counts = np.bincount(rows, minlength=len(properties))
    ends = np.concatenate(([0], np.cumsum(counts)))
    row_offsets = pa.py_buffer(offsets_of(entries)[ends].astype(np.int32))
    data = entries.buffers()[2] or pa.py_buffer(b"")
    return pa.Array.from_buffers(pa.binary(), len(properties), [None, row_offsets, data])


def _taken(
    names: pa.BinaryArray, rows: NDArray[np.int64], columns: Mapping[str, pa.BinaryArray]
) -> NDArray[np.bool_]:
    """Returns a mask of the entries with a name that has a column and a value in their row."""
    taken = np.zeros(len(names), np.bool_)
    for name, column in columns.items():
        same = pc.equal(names, name.encode()).to_numpy(zero_copy_only=False)
        taken |= same.astype(np.bool_) & _filled(column)[rows]
    return taken
