"""Blocks of clients: their checks, and the places where they are stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rocketpy_broker.errors import RecordIllegalError
from rocketpy_broker.store.values import AppendResult
from rocketpy_proto.record import MalformedRecordError, RecordBlock, property_column
from rocketpy_proto.record.properties import WAIT
from rocketpy_proto.record.sys_flag import has_transactions

NO_WAIT = b"WAIT\x01false"


class Stored(NamedTuple):
    """A stored block with the queue that it was sent to.

    `waits` is True if its sender waits for the flush. `delayed` is the stored block, if it waits in
    another queue first.
    """

    queue_id: int
    result: AppendResult
    waits: bool
    delayed: RecordBlock | None = None

    @property
    def is_delayed(self) -> bool:
        """True if the messages are stored in another queue first."""
        return self.delayed is not None


def checked_block(
    topic: str, records: bytes | bytearray, record_sizes: bytes, body_bytes_max: int
) -> RecordBlock:
    """Returns a client's checked block, without a copy of `records`. Any thread may call it.

    Raises RecordIllegalError.
    """
    if len(record_sizes) % 4 or not record_sizes:
        raise RecordIllegalError(
            f"record_sizes has {len(record_sizes)} bytes; it must hold one int32 per record, "
            "and at least one"
        )
    sizes = np.frombuffer(record_sizes, ">i4").astype(np.int32)
    try:
        block = RecordBlock.parse(records, sizes)
        block.verify_body_crc()
    except MalformedRecordError as error:
        raise RecordIllegalError(f"the block is malformed: {error}") from error
    if block.single_topic() != topic:
        raise RecordIllegalError(
            f"the block holds records of other topics than {topic!r:.200}; "
            "send the records of each topic in a block of their own"
        )
    longest = int(block.body_length.max())
    if longest > body_bytes_max:
        raise RecordIllegalError(f"a message body has {longest} bytes, limit {body_bytes_max}")
    if has_transactions(block.header["sys_flag"]):
        raise RecordIllegalError(
            "the block holds prepared, committed or rolled back records; "
            "send records without transaction bits"
        )
    return block


def declines_to_wait(block: RecordBlock) -> bool:
    """True if every record has WAIT=false; for most blocks the first record decides."""
    begin = int(block.properties_start[0])
    first = bytes(block.data[begin : begin + int(block.properties_length[0])])
    if NO_WAIT not in first:
        return False
    return set(property_column(block, WAIT).to_pylist()) == {"false"}
