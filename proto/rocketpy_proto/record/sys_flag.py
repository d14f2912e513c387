"""Bits of sysFlag. Source: docs/design/storage.md section 4.1."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


@overload
def has_queue_offset(sys_flag: int) -> bool: ...
@overload
def has_queue_offset(sys_flag: NDArray[np.integer]) -> NDArray[np.bool_]: ...
def has_queue_offset(sys_flag: int | NDArray[np.integer]) -> bool | NDArray[np.bool_]:
    """True if a record has a place in its queue; prepared and rolled back ones have none.

    Source: docs/design/storage.md section 2.3.
    """
    kind = sys_flag & TRANSACTION_MASK
    return (kind != TRANSACTION_PREPARED) & (kind != TRANSACTION_ROLLBACK)


def has_transactions(sys_flags: NDArray[np.integer]) -> bool:
    """True if any of these records has transaction bits; most blocks have none."""
    return bool(np.count_nonzero(sys_flags & TRANSACTION_MASK))
