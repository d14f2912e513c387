"""Delayed delivery of rows: by a delay level, or at a time.

The messages of a block must all have the same delay level, or all have a time. So rows are
separated by their delay. The broker decides if a time is too far ahead, since its clock counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_rocketpy.errors import ColumnError
from pyspark_rocketpy.sink.rows import Rows, first_true
from pyspark_rocketpy.transport.write_values import DELAY_TIMED
from rocketpy_proto.record.block.masks import null_unless
from rocketpy_proto.record.properties import DELAY, TIMER_DELIVER_MS

DELAY_BITS = 8
assert DELAY_TIMED < 1 << DELAY_BITS
LEVEL_MAX = DELAY_TIMED - 1
# The end of the year 9999, the last that Python's calendar holds.
TIME_MICROSECONDS_MAX = 253_402_300_799_999_999


def delays_of(rows: Rows) -> NDArray[np.int64]:
    """Returns each row's delay level; DELAY_TIMED for a row with a time, 0 for no delay.

    Raises ColumnError.
    """
    delays = np.zeros(len(rows), np.int64)
    if rows.has("delayLevel"):
        levels = rows.batch.column("delayLevel").cast(pa.int64()).fill_null(0)
        negative = pc.less(levels, 0)
        if pc.any(negative).as_py():
            row = first_true(negative)
            raise ColumnError(
                f"column delayLevel is {levels[row].as_py()} in {rows.where(row)}; accepted: "
                "levels from 1 on, and 0 or null for no delay"
            )
        delays = np.minimum(levels.to_numpy(zero_copy_only=False), LEVEL_MAX)
    if rows.has("deliverAt"):
        times = _microseconds(rows)
        _check_times(rows, times)
        is_timed = times.is_valid().to_numpy(zero_copy_only=False)
        both = is_timed & (delays > 0)
        if both.any():
            raise ColumnError(
                f"columns delayLevel and deliverAt are both set in {rows.where(int(both.argmax()))}"
                "; leave one of them null"
            )
        delays = np.where(is_timed, DELAY_TIMED, delays)
    return delays


def waiting_properties(rows: Rows) -> dict[str, pa.StringArray]:
    """Returns the properties that make the broker delay messages; null for rows without delay."""
    properties = {}
    if rows.has("delayLevel"):
        levels = rows.batch.column("delayLevel").cast(pa.int64())
        levels = pc.min_element_wise(levels, LEVEL_MAX, skip_nulls=False)
        positive = null_unless(pc.greater(levels, 0), levels)
        properties[DELAY] = positive.cast(pa.string())
    if rows.has("deliverAt"):
        # Rounded up: a message is never early. Past times mean now.
        times = pc.max_element_wise(_microseconds(rows), 0, skip_nulls=False)
        milliseconds = pc.divide(pc.add(times, 999), 1_000)
        properties[TIMER_DELIVER_MS] = milliseconds.cast(pa.string())
    return properties


def _microseconds(rows: Rows) -> pa.Int64Array:
    return rows.batch.column("deliverAt").cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _check_times(rows: Rows, times: pa.Int64Array) -> None:
    """Raises ColumnError for a time after the end of the year 9999."""
    too_late = pc.greater(times, TIME_MICROSECONDS_MAX).fill_null(False)
    if pc.any(too_late).as_py():
        row = first_true(too_late)
        raise ColumnError(
            f"column deliverAt is {times[row].as_py()} microseconds since 1970 in "
            f"{rows.where(row)}, limit the end of the year 9999; set a time up to 3 days from "
            "now, the default limit of brokers"
        )
