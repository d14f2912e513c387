"""Properties of a whole block, without a loop over messages.

All properties strings are gathered into one run of bytes. Comparisons of whole arrays find the
separators. Names and values become Arrow arrays. Source: docs/design/storage.md section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketpy_proto.record.block.arrays import array_of, numbers_in
from rocketpy_proto.record.block.ranges import binary_ranges, octets_of, offsets_of, to_strings
from rocketpy_proto.record.layout import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

# Duplicates are found by sorting if a record has more entries.
ENTRIES_COMPARED_MAX = 16
# Names of these sizes are compared as numbers.
WORD_BYTES = (4, 8)
# Records with more entries are not checked for equal names.
ALIKE_NAMES_MAX = 16


@dataclass(frozen=True, slots=True)
class BlockProperties:
    """Entries of n records; `record` (m int64, ascending) is each entry's record.

    `codes` number the distinct names; `name_code` maps a name to its number.
    """

    count: int
    record: NDArray[np.int64]
    names: pa.StringArray
    values: pa.StringArray
    codes: NDArray[np.int32]
    name_code: dict[str, int]

    def column(self, name: str) -> pa.StringArray:
        """Returns the value of property `name` in each record, null if absent."""
        code = self.name_code.get(name)
        if code is None:
            return pa.nulls(self.count, pa.string())
        entries = np.flatnonzero(self.codes == code)
        if len(entries) == self.count:
            return self.values.take(array_of(entries))
        index = np.full(self.count, -1, np.int64)
        index[self.record[entries]] = entries
        return self.values.take(array_of(index, valid=index >= 0))

    def map_column(self) -> pa.MapArray:
        """Returns every property of each record."""
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(np.bincount(self.record, minlength=self.count), out=offsets[1:])
        return pa.MapArray.from_arrays(array_of(offsets), self.names, self.values)


def parse_properties(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> BlockProperties:
    """Reads the properties strings at the given ranges of `data`."""
    entries = find_entries(data, starts, lengths)
    octets = entries.octets
    names = to_strings(binary_ranges(octets, entries.begin, entries.middle))
    values = to_strings(binary_ranges(octets, entries.middle + 1, entries.end))
    return _last_ones(len(starts), entries.record, names, values)


@dataclass(frozen=True, slots=True)
class Entries:
    """Positions of entries in `octets`: name [begin, middle), value [middle + 1, end).

    `names` has the names of each record, in order, if all records have the same few. Otherwise, and
    without entries, it is empty.
    """

    octets: NDArray[np.uint8]
    record: NDArray[np.int64]
    begin: NDArray[np.int64]
    middle: NDArray[np.int64]
    end: NDArray[np.int64]
    names: tuple[bytes, ...] = ()

    def named(self, name: str) -> NDArray[np.int64]:
        """Returns the entries with this name; a name of 4 or 8 bytes is compared as a number."""
        octets = name.encode()
        if self.names and self.names.count(octets) < 2:
            first = self.names.index(octets) if octets in self.names else len(self.begin)
            return np.arange(first, len(self.begin), len(self.names))
        found: NDArray[np.int64] = (self.middle - self.begin == len(octets)).nonzero()[0]
        if len(found) == 0:
            return found
        words = _words(self.octets, len(octets))
        word = np.frombuffer(octets, words.dtype)
        # Indexing by number is faster than by mask.
        named: NDArray[np.int64] = found[(words[self.begin[found]] == word).nonzero()[0]]
        return named

    def values_of(self, name: str, count: int) -> pa.StringArray:
        """Returns the value of property `name` in each of `count` records, null if absent."""
        named = self.named(name)
        values = to_strings(binary_ranges(self.octets, self.middle[named] + 1, self.end[named]))
        # The last of several entries of one record is assigned last, so it wins.
        index = np.full(count, -1, np.int64)
        index[self.record[named]] = np.arange(len(named))
        return values.take(array_of(index, valid=index >= 0))


def find_entries(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Entries:
    """Returns the entries with a name and a value, in order, of the strings at the given ranges."""
    strings = binary_ranges(data, starts, starts + lengths)
    octets, bounds = octets_of(strings), offsets_of(strings).astype(np.int64)
    used = octets[: bounds[-1]]
    middles = (used == NAME_VALUE_SEPARATOR).nonzero()[0]
    ends = (used == PROPERTY_SEPARATOR).nonzero()[0]
    after = ends + 1
    per_record: int | NDArray[np.int64] = _equal_count(after, bounds)
    if not per_record:
        ends, after = _with_open_ended(used, bounds, ends)
        per_record = np.diff(np.searchsorted(after, bounds, "right"))
    record = np.arange(len(starts)).repeat(per_record)
    begins = np.concatenate(([0], after[:-1])) if len(ends) else ends
    middles = _first_middles(middles, begins, ends)
    good = (middles > begins) & (middles + 1 < ends)
    if np.count_nonzero(good) < len(good):
        return Entries(octets, record[good], begins[good], middles[good], ends[good])
    names = _same_names(used, begins, middles, per_record) if isinstance(per_record, int) else ()
    return Entries(octets, record, begins, middles, ends, names)


def _words(octets: NDArray[np.uint8], size: int) -> NDArray[Any]:
    """Returns a view with a comparable item of `size` bytes at every byte; a number if possible."""
    dtype = f"{'u' if size in WORD_BYTES else 'S'}{size}"
    words: NDArray[Any] = np.ndarray((len(octets) - size + 1,), dtype, octets, strides=(1,))
    return words


def _same_names(
    octets: NDArray[np.uint8],
    begins: NDArray[np.int64],
    middles: NDArray[np.int64],
    per_record: int,
) -> tuple[bytes, ...]:
    """Returns the names of each record's `per_record` entries if all have the same few; else ()."""
    if per_record > ALIKE_NAMES_MAX:
        return ()
    places = begins.reshape(-1, per_record)
    lengths = middles.reshape(-1, per_record) - places
    if np.count_nonzero(lengths != lengths[0]):
        return ()
    names = []
    for column, size in enumerate(lengths[0].tolist()):
        found = _words(octets, size)[places[:, column]]
        if np.count_nonzero(found != found[0]):
            return ()
        names.append(found[:1].tobytes())
    return tuple(names)


def _equal_count(after: NDArray[np.int64], bounds: NDArray[np.int64]) -> int:
    """Returns the number of entries per record if it is the same for all; else 0.

    `after` are the positions after separators. Messages of one sender mostly are alike.
    """
    count, rest = divmod(len(after), max(len(bounds) - 1, 1))
    if count == 0 or rest or np.count_nonzero(after[count - 1 :: count] != bounds[1:]):
        return 0
    return count


def _with_open_ended(
    used: NDArray[np.uint8], bounds: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the ends of entries and the positions after them, with open-ended entries.

    If a record's last entry has no separator, it ends with the record.
    """
    after = ends + 1
    lasts = bounds[1:]
    filled = lasts > bounds[:-1]
    open_ended = lasts[filled][used[lasts[filled] - 1] != PROPERTY_SEPARATOR]
    if len(open_ended) == 0:
        return ends, after
    # A record may start with a separator, just where an open-ended entry ends. The open-ended entry
    # comes first, which a stable sort keeps.
    order = np.argsort(np.concatenate((open_ended, ends)), kind="stable")
    after = np.concatenate((open_ended, after))[order]
    return np.concatenate((open_ended, ends))[order], after


def _first_middles(
    middles: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the first name end in each entry; a position outside of it if there is none."""
    if len(middles) == len(begins):
        inside = (begins <= middles) & (middles < ends)
        if np.count_nonzero(inside) == len(inside):
            return middles
    if len(middles) == 0:
        return np.full(len(begins), -1, np.int64)
    place = np.searchsorted(middles, begins)
    found = middles[np.minimum(place, len(middles) - 1)]
    return np.where((place < len(middles)) & (found < ends), found, -1)


def _last_ones(
    count: int, record: NDArray[np.int64], names: pa.StringArray, values: pa.StringArray
) -> BlockProperties:
    """Drops every entry with a name that is repeated later in its record."""
    dictionary = names.dictionary_encode()
    codes = numbers_in(dictionary.indices, np.int32)
    name_code = {name: code for code, name in enumerate(dictionary.dictionary.to_pylist())}
    again = _comes_again(record, codes)
    if again.any():
        kept = np.flatnonzero(~again)
        record, codes = record[kept], codes[kept]
        names, values = names.take(array_of(kept)), values.take(array_of(kept))
    return BlockProperties(count, record, names, values, codes, name_code)


def _comes_again(record: NDArray[np.int64], codes: NDArray[np.int32]) -> NDArray[np.bool_]:
    again = np.zeros(len(record), np.bool_)
    if len(record) == 0:
        return again
    if np.bincount(record).max() > ENTRIES_COMPARED_MAX:
        order = np.lexsort((np.arange(len(record)), codes, record))
        same = (record[order][1:] == record[order][:-1]) & (codes[order][1:] == codes[order][:-1])
        again[order[:-1][same]] = True
        return again
    for distance in range(1, min(ENTRIES_COMPARED_MAX, len(record))):
        near = record[distance:] == record[:-distance]
        if not near.any():
            break
        again[:-distance] |= near & (codes[distance:] == codes[:-distance])
    return again
