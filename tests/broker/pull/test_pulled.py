"""The age of an answer's last message, read from its record."""

from __future__ import annotations

import numpy as np
import pytest

from rocketpy_broker.services.pull.outcome import behind_ms
from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus
from rocketpy_proto.record import Host, Record, encode_record

V4, V6 = Host.parse("10.0.0.1:1"), Host.parse("[2001:db8::1]:1")
NOW_MS = 1_700_000_000_000
AGE_MS_MAX = 1 << 62


def result(*records: bytes, next_offset: int = 3, is_joined: bool = True) -> GetMessageResult:
    """Returns an answer with these records, of a queue with four."""
    parts = [b"".join(records)] if is_joined else records
    views = [memoryview(part) for part in parts]
    sizes = np.array([len(record) for record in records], np.int32)
    return GetMessageResult(GetMessageStatus.FOUND, next_offset, 0, 4, views, sizes)


def record(store_timestamp_ms: int, host: Host = V4) -> bytes:
    return encode_record(
        Record("T", 0, b"", born_host=host, store_host=host, store_timestamp_ms=store_timestamp_ms)
    )


@pytest.mark.parametrize("host", [V4, V6])
@pytest.mark.parametrize("is_joined", [True, False])
def test_s13_the_last_record_tells_when_it_was_stored(host: Host, *, is_joined: bool) -> None:
    records = [record(NOW_MS - 5_000), record(NOW_MS - 700, host)]
    assert behind_ms(result(*records, is_joined=is_joined), NOW_MS) == 700


def test_s13_at_the_end_of_the_queue_and_without_messages_nobody_is_behind() -> None:
    assert behind_ms(result(record(NOW_MS - 700), next_offset=4), NOW_MS) == 0
    assert behind_ms(result(), NOW_MS) == 0


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (b"x" * 87, 0),
        (b"\xff" * 88, NOW_MS + 1),
        (b"\x80" * 88, AGE_MS_MAX),
        (record(NOW_MS + 60_000), 0),
    ],
    ids=["too short", "minus one", "long ago", "clock set back"],
)
def test_s13_what_is_no_record_or_from_another_time_has_a_figure_all_the_same(
    last: bytes, expected: int
) -> None:
    assert behind_ms(result(last), NOW_MS) == expected
