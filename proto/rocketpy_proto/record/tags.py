"""Tags codes of a whole block. Source: spec/storage.md section 4.2. Holds no state.

A broker needs the code of every message it takes, and nothing else of its properties. So entries
are found as in `properties_block`, but only those named TAGS are looked at further.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record.java_hash import java_hashes
from rocketpy_proto.record.properties import TAGS
from rocketpy_proto.record.properties_block import find_entries
from rocketpy_proto.record.ranges import binary_ranges, octets_of, to_strings

_NAME = np.frombuffer(TAGS.encode(), np.uint32)


def tags_codes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The code of the TAGS in each properties string; 0 where there is none."""
    codes = np.zeros(len(starts), np.int64)
    strings = binary_ranges(data, starts, starts + lengths)
    octets = octets_of(strings)
    entries = find_entries(strings)
    named = np.flatnonzero(entries.middle - entries.begin == _NAME.itemsize)
    if len(named) == 0:
        return codes
    words = np.ndarray((len(octets) - _NAME.itemsize + 1,), _NAME.dtype, octets, strides=(1,))
    named = named[words[entries.begin[named]] == _NAME[0]]
    tags = to_strings(binary_ranges(octets, entries.middle[named] + 1, entries.end[named]))
    # Tags repeat, so each distinct one is hashed once.
    distinct = tags.dictionary_encode()
    hashes = java_hashes(distinct.dictionary)[distinct.indices.to_numpy(zero_copy_only=False)]
    # Of several entries of one record the last is assigned last, and so it wins.
    codes[entries.record[named]] = hashes
    return codes
