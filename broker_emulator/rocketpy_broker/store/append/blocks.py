"""Checks, splitting and property look-ups of a block before its append."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.queues.dispatch import NO_KEYS
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import BLANK_BYTES, Host, RecordBlock
from rocketpy_proto.record.index_keys import KeyLimits, TagsAndKeys, tags_codes_and_index_keys
from rocketpy_proto.record.sys_flag import STORE_HOST_V6


def check_fits(block: RecordBlock, config: StoreConfig, store_host: Host) -> None:
    """Raises RecordIllegalError if a record fits no segment, or cannot hold the store host."""
    largest = int(block.sizes.max())
    if largest + BLANK_BYTES > config.commit_log_segment_bytes:
        raise RecordIllegalError(
            f"a record of {largest} bytes does not fit a commit log segment of "
            f"{config.commit_log_segment_bytes} bytes; send less in a message"
        )
    if ((block.header["sys_flag"] & STORE_HOST_V6 != 0) != store_host.is_v6).any():
        raise RecordIllegalError(
            f"the records have room for a store host of another IP version than {store_host}; "
            "encode them for that version"
        )


def parts_within(block: RecordBlock, config: StoreConfig) -> Iterator[RecordBlock]:
    """Yields the block in parts that fit a segment of the log, or hold one record.

    A block that fits is yielded unchanged.
    """
    room = config.commit_log_segment_bytes - BLANK_BYTES
    ends = block.sizes.cumsum(dtype=np.int64)
    first = 0
    while first < len(block):
        start = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, start + room, "right")), first + 1)
        if last - first == len(block):
            yield block
            return
        data = bytearray(block.data[start : int(ends[last - 1])])
        yield RecordBlock.parse(data, block.sizes[first:last])
        first = last


def tags_and_keys(
    queue: QueueKey, block: RecordBlock, config: StoreConfig, limits: KeyLimits | None = None
) -> TagsAndKeys:
    """Returns the tags codes and keys that consume queue and index need.

    Raises MalformedRecordError for a block with more keys than `limits`.
    """
    if config.index_enable:
        return tags_codes_and_index_keys(block, queue.topic, limits)
    return TagsAndKeys(block.tags_codes(), NO_KEYS)
