"""Tags codes of a whole block. Source: docs/design/storage.md section 4.2.

A broker needs the code of every appended message. Of its properties it needs nothing else but the
keys (`index_keys`). So `properties_block` finds the entries, and only entries named TAGS are read
further.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record.block.properties_block import Entries
from rocketpy_proto.record.java_hash import java_hash_ranges
from rocketpy_proto.record.properties import TAGS

_NO_SEED = np.zeros(1, np.uint32)


def tags_codes(entries: Entries, count: int) -> NDArray[np.int64]:
    """Returns the code of the TAGS of each of `count` records; 0 for a record without."""
    codes = np.zeros(count, np.int64)
    named = entries.named(TAGS)
    begins, ends = entries.middle[named] + 1, entries.end[named]
    # The last of several entries of one record is assigned last, so it wins.
    codes[entries.record[named]] = java_hash_ranges(entries.octets, begins, ends, _NO_SEED)
    return codes
