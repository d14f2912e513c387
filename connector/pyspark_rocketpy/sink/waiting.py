"""Rows that become visible later: by a delay level, or at a time. Holds no state. Rows D01, D02.

The broker takes blocks whose messages all wait alike, so rows that wait differently are told apart.
Whether a time is too far ahead is for the broker to say, whose clock counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.rows import Rows, first_true
from pyspark_rocketpy.transport.writing_values import DELAY_TIMED
from rocketpy_proto.record.masking import null_unless
from rocketpy_proto.record.properties import DELAY, TIMER_DELIVER_MS

DELAY_BITS = 8
assert DELAY_TIMED < 1 << DELAY_BITS
LEVEL_MAX = DELAY_TIMED - 1


def delays_of(rows: Rows) -> NDArray[np.int64]:
    """The level of each row, DELAY_TIMED where it has a time, 0 where it does not wait.

    Raises ColumnError.
    """
    delays = np.zeros(len(rows), np.int64)
    if rows.has("delayLevel"):
        levels = rows.batch.column("delayLevel").cast(pa.int64()).fill_null(0)
        negative = pc.less(levels, 0)
        if pc.any(negative).as_py():
            row = first_true(negative)
            raise ColumnError(
                f"column delayLevel is {levels[row].as_py()} in {rows.where(row)}; accepted are "
                "levels from 1 on, and 0 or null for no delay"
            )
        delays = np.minimum(levels.to_numpy(zero_copy_only=False), LEVEL_MAX)
    if rows.has("deliverAt"):
        is_timed = rows.batch.column("deliverAt").is_valid().to_numpy(zero_copy_only=False)
        both = is_timed & (delays > 0)
        if both.any():
            raise ColumnError(
                f"columns delayLevel and deliverAt are both set in {rows.where(int(both.argmax()))}"
                "; leave one of them null"
            )
        delays = np.where(is_timed, DELAY_TIMED, delays)
    return delays


def waiting_properties(rows: Rows) -> dict[str, pa.StringArray]:
    """The properties by which the broker lets messages wait; null where a row does not."""
    properties = {}
    if rows.has("delayLevel"):
        levels = rows.batch.column("delayLevel").cast(pa.int64())
        positive = null_unless(pc.greater(levels, 0), levels)
        properties[DELAY] = positive.cast(pa.string())
    if rows.has("deliverAt"):
        # Rounded up: a message is never early.
        microseconds = rows.batch.column("deliverAt").cast(pa.timestamp("us", "UTC"))
        times = pc.add(microseconds.cast(pa.int64()), 999)
        milliseconds = pc.max_element_wise(pc.divide(times, 1_000), 0, skip_nulls=False)
        properties[TIMER_DELIVER_MS] = milliseconds.cast(pa.string())
    return properties
