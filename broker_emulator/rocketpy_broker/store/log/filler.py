"""Fillers: well-formed records in place of damaged bytes.

RocketMQ takes a bad record for the end of its log and cuts what follows. A filler has the size of
the bytes it replaces and a body of zeros. Its flag is ours, and its store host is one that no
broker has. If the queue offset of the damaged record is known, the filler has it too and keeps its
unit. A blank unit would make RocketMQ skip the rest of a segment; a missing one would move all
later ones. So RocketMQ's consumers get an empty message there; ours get none. If the queue offset
is unknown, the filler has the type of a rolled back message: no unit and no index entry. Damage
that reaches a segment's end becomes a blank record.

A filler is written after a copy of the damaged bytes is in quarantine, record first and checksum
second. A crash in between leaves damage, which the next recovery fills again.
Source: CommitLog#checkMessageAndReturnSize, docs/design/storage.md sections 2.2, 2.6, 6.1, 6.2 and
6.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.values import Damage, QueueKey
from rocketpy_proto.record import (
    BLANK_BYTES,
    MalformedRecordError,
    Record,
    RecordBlock,
    decode_record,
    encode_blank,
    encode_record,
)
from rocketpy_proto.record.crc import body_crc
from rocketpy_proto.record.hosts import UNKNOWN_HOST
from rocketpy_proto.record.layout import FIXED_BYTES
from rocketpy_proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_ROLLBACK

# Not larger than RocketMQ allows a record to be.
FILLER_BYTES_MAX = 4 << 20
FLAG_OFFSET = 16
FILLER_FLAG = int.from_bytes(b"RKPY", "big")


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that cannot be read any more, with the place in a queue that it names."""

    queue: QueueKey
    queue_offset: int
    physical_offset: int
    size: int

    @classmethod
    def of(cls, record: Record, physical_offset: int, size: int) -> Lost:
        """Returns the place of `record`."""
        key = QueueKey(record.topic, record.queue_id)
        return cls(key, record.queue_offset, physical_offset, size)


def is_filler(record: Record) -> bool:
    """True if the record replaces damaged bytes. A client cannot send its store host."""
    return record.flag == FILLER_FLAG and record.store_host == UNKNOWN_HOST


def fillers_among(header: NDArray[np.void]) -> NDArray[np.bool_]:
    """Returns a mask of the fillers among the records with these headers."""
    found: NDArray[np.bool_] = header["flag"] == FILLER_FLAG
    if found.any():
        hosts = header["store_host"]
        found &= hosts == np.void(bytes(hosts.dtype.itemsize))
        found &= header["sys_flag"] & (BORN_HOST_V6 | STORE_HOST_V6) == 0
    return found


def fillers_of(block: RecordBlock) -> Iterator[Lost]:
    """Yields the lost record of each filler in the block."""
    for row in np.flatnonzero(fillers_among(block.header)).tolist():
        record = decode_record(block.data.data, int(block.positions[row])).record
        yield Lost.of(record, record.physical_offset, int(block.sizes[row]))


def fill(log: CommitLog, damage: Damage, store_timestamp_ms: int, known: Record | None) -> bool:
    """Writes fillers over `damage`; returns False if they do not fit. Raises OSError.

    `known` is the damaged record, if its place in its queue is known.
    """
    segment = log.files.find(damage.offset)
    assert segment is not None
    position, left = damage.offset - segment.base, damage.length
    checksums = log.checksums.of(segment)
    if position + left == segment.size_bytes:
        if left < BLANK_BYTES:
            return False
        segment.clear_from(position)
        segment.write(position, memoryview(encode_blank(left)))
        checksums.truncate(position)
        return True
    if left < FIXED_BYTES:
        return False
    while left > 0:
        # The remaining bytes hold at least one more filler.
        size = left if left <= FILLER_BYTES_MAX else FILLER_BYTES_MAX - FIXED_BYTES
        data = _encoded(known, size, segment.base + position, store_timestamp_ms)
        segment.write(position, memoryview(data))
        checksums.replace(position, size, body_crc(data))
        position, left = position + size, left - size
    return True


def has_filler(log: CommitLog, damage: Damage) -> bool:
    """True if a crash has left a filler there, but not its checksum."""
    view = log.files.view(damage.offset, damage.length)
    # A quick test first: damaged places may be very many, and most have no filler.
    if view[FLAG_OFFSET : FLAG_OFFSET + 4] != FILLER_FLAG.to_bytes(4, "big"):
        return False
    try:
        block = RecordBlock.parse(view, np.array([damage.length], np.int32))
        block.verify_body_crc()
    except MalformedRecordError:
        return False
    return [one.physical_offset for one in fillers_of(block)] == [damage.offset]


def _encoded(
    known: Record | None, size: int, physical_offset: int, store_timestamp_ms: int
) -> bytes:
    filler = Record(
        known.topic if known else "",
        known.queue_id if known else 0,
        b"",
        flag=FILLER_FLAG,
        queue_offset=known.queue_offset if known else 0,
        physical_offset=physical_offset,
        sys_flag=0 if known else TRANSACTION_ROLLBACK,
        store_timestamp_ms=max(store_timestamp_ms, 1),
    )
    return encode_record(replace(filler, body=bytes(size - len(encode_record(filler)))))
