"""Null masks for Arrow columns.

Before pyarrow 24, `if_else` of a mask, a null scalar and a slice of strings returns strings of
other memory. So neither this module nor its callers use it for nulls.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def null_where(mask: pa.BooleanArray, column: pa.Array) -> pa.Array:
    """Returns the column of n values, null where the mask of n values is true or null."""
    return pc.replace_with_mask(column, mask, pa.scalar(None, column.type))


def null_unless(mask: pa.BooleanArray, column: pa.Array) -> pa.Array:
    """Returns the column of n values, null where the mask of n values is false or null."""
    return null_where(pc.invert(mask), column)
