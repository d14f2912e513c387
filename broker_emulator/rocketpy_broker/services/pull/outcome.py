"""Codes of answers to pulls, and their counts and lags for statistics."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np

from rocketpy_broker.store.values import GetMessageResult, GetMessageStatus, QueueKey
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.record.layout import HEADER_BYTES, HEADER_V4, HEADER_V6
from rocketpy_proto.record.sys_flag import BORN_HOST_V6

_SYS_FLAG, _STORE_TIMESTAMP = Struct(">i"), Struct(">q")
_AGE_MS_MAX = 1 << 62

EMPTY_QUEUE = (
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)

_CODE_BY_STATUS = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


def _place(header: np.dtype[np.void], name: str) -> int:
    assert header.fields is not None
    return header.fields[name][1]


_SYS_FLAG_AT = _place(HEADER_V4, "sys_flag")
# Indexed by the BORN_HOST_V6 flag.
_STORE_TIMESTAMP_AT = [_place(header, "store_timestamp") for header in (HEADER_V4, HEADER_V6)]


def response_code(result: GetMessageResult, offset: int, offset_end: int) -> ResponseCode:
    """Returns the response code for the result of a read from `offset` on.

    A queue without messages has offset 0 only; any other offset has moved. The read of a range
    without a match is successful.
    """
    if result.status is GetMessageStatus.NO_MATCHED_MESSAGE and result.next_offset >= offset_end:
        return ResponseCode.SUCCESS
    if result.status in EMPTY_QUEUE:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODE_BY_STATUS[result.status]


@dataclass(frozen=True, slots=True)
class Pulled:
    """An answer to a pull: its messages, bytes of records, and duration without the hold.

    `behind_bytes` is the distance from the last examined record to the log's end. `behind_ms` is
    the time since the last message was stored; 0 at the end of the queue and without messages.
    `next_offset` is the queue offset after the examined messages.
    """

    queue: QueueKey
    group: str
    count: int
    bytes: int
    latency_ms: int
    behind_bytes: int
    behind_ms: int
    next_offset: int = 0

    @classmethod
    def of(
        cls, queue: QueueKey, group: str, result: GetMessageResult, now_ms: int, latency_ms: int = 0
    ) -> Pulled:
        """Returns the values of an answer with `result`."""
        return cls(
            *(queue, group, len(result.sizes), result.byte_count, latency_ms),
            result.behind_bytes or 0,
            behind_ms(result, now_ms),
            result.next_offset,
        )


def behind_ms(result: GetMessageResult, now_ms: int) -> int:
    """Returns the ms since the result's last message was stored; 0 if it is the queue's last."""
    if len(result.sizes) == 0 or result.next_offset >= result.max_offset:
        return 0
    last, size = result.parts[-1], int(result.sizes[-1])
    if size < HEADER_BYTES:
        # Not a record; the client detects it.
        return 0
    begin = len(last) - size
    (sys_flag,) = _SYS_FLAG.unpack_from(last, begin + _SYS_FLAG_AT)
    at = _STORE_TIMESTAMP_AT[bool(sys_flag & BORN_HOST_V6)]
    (store_timestamp_ms,) = _STORE_TIMESTAMP.unpack_from(last, begin + at)
    return min(max(now_ms - int(store_timestamp_ms), 0), _AGE_MS_MAX)
