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

_NAME = np.frombuffer(TAGS.encode(), np.uint8)


def tags_codes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The code of the TAGS in each properties string; 0 where there is none."""
    codes = np.zeros(len(starts), np.int64)
    strings = binary_ranges(data, starts, starts + lengths)
    octets = octets_of(strings)
    entries = find_entries(strings)
    named = np.flatnonzero(entries.middle - entries.begin == len(_NAME))
    for place, octet in enumerate(_NAME):
        named = named[octets[entries.begin[named] + place] == octet]
    values = binary_ranges(octets, entries.middle[named] + 1, entries.end[named])
    # Of several entries of one record the last is assigned last, and so it wins.
    codes[entries.record[named]] = java_hashes(to_strings(values))
    return codes
