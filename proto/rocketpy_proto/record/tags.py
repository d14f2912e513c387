"""Tags codes of a whole block. Source: docs/design/storage.md section 4.2. Holds no state.

A broker needs the code of every message it takes, and nothing else of its properties but the keys
(`index_keys`). So entries are found as in `properties_block`, but only those named TAGS are looked
at further.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rocketpy_proto.record.block.properties_block import Entries
from rocketpy_proto.record.java_hash import java_hash_ranges
from rocketpy_proto.record.properties import TAGS

_NO_SEED = np.zeros(1, np.uint32)


def tags_codes(entries: Entries, count: int) -> NDArray[np.int64]:
    """Returns the code of the TAGS of each of `count` records; 0 where there is none."""
    codes = np.zeros(count, np.int64)
    named = entries.named(TAGS)
    begins, ends = entries.middle[named] + 1, entries.end[named]
    # Of several entries of one record the last is assigned last, and so it wins.
    codes[entries.record[named]] = java_hash_ranges(entries.octets, begins, ends, _NO_SEED)
    return codes
