"""M03: a log read from its files, without the store."""

from __future__ import annotations

from tests.faults.simulation.machine import SEGMENT_BYTES
from tests.faults.simulation.pair.log import RawLog


def test_m3_zeros_at_the_end_of_each_segment_are_not_used() -> None:
    first, second = b"one\0two".ljust(SEGMENT_BYTES, b"\0"), b"three\0\0"
    log = RawLog(3 * SEGMENT_BYTES, first + second)
    assert log.used_after(log.begin + 4) == b"twothree"
    assert log.used_after(log.begin + SEGMENT_BYTES + 1) == b"hree"
    assert log.used_after(log.end) == b""
