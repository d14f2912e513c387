"""Fillers: well-formed records in place of damaged bytes, where RocketMQ's log would end.

RocketMQ takes a bad record for the end of its log and cuts what follows. A filler has the size of
what it replaces, and the type of a rolled back message: RocketMQ's recovery finds it sound, gives
it neither unit nor index entry, and no reader of ours shows it. Where the damaged record still
tells its topic, queue and queue offset, the filler tells them too, so that the offset stays taken.
What reaches to a segment's end becomes a blank record.

Written after a copy of the damaged bytes is in quarantine, record first and checksum second: a
crash in between leaves damage, which the next recovery fills again.
Source: CommitLog#checkMessageAndReturnSize, spec/storage.md sections 2.2, 2.6, 6.1 and 7.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

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
from rocketpy_proto.record.layout import FIXED_BYTES
from rocketpy_proto.record.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK

# No larger than a record of RocketMQ may be.
FILLER_BYTES_MAX = 4 << 20
FILLER_FLAG = int.from_bytes(b"RKPY", "big")


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that nobody can read any more, as far as it tells its place in a queue."""

    queue: QueueKey
    queue_offset: int
    physical_offset: int
    size: int

    @classmethod
    def of(cls, record: Record, physical_offset: int, size: int) -> Lost:
        """What is left of `record`."""
        key = QueueKey(record.topic, record.queue_id)
        return cls(key, record.queue_offset, physical_offset, size)


def is_filler(record: Record) -> bool:
    """Whether the record stands for damaged bytes."""
    kind = record.sys_flag & TRANSACTION_MASK
    return kind == TRANSACTION_ROLLBACK and record.flag == FILLER_FLAG


def fillers_of(block: RecordBlock) -> Iterator[Lost]:
    """What the fillers among these records stand for."""
    kinds = block.header["sys_flag"] & TRANSACTION_MASK
    rows = np.flatnonzero((block.header["flag"] == FILLER_FLAG) & (kinds == TRANSACTION_ROLLBACK))
    for row in rows.tolist():
        record = decode_record(block.data.data, int(block.positions[row])).record
        yield Lost.of(record, record.physical_offset, int(block.sizes[row]))


def fill(log: CommitLog, damage: Damage, store_timestamp_ms: int) -> bool:
    """Put fillers in place of `damage`; False where they have no room. Raises OSError."""
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
    told = _told(segment.view[position : position + left])
    while left > 0:
        # What stays has room for one more.
        size = left if left <= FILLER_BYTES_MAX else FILLER_BYTES_MAX - FIXED_BYTES
        data = _encoded(told, size, segment.base + position, store_timestamp_ms)
        segment.write(position, memoryview(data))
        checksums.replace(position, size, body_crc(data))
        position, left = position + size, left - size
    return True


def fill_damaged(log: CommitLog, damages: Iterable[Damage], store_timestamp_ms: int) -> None:
    """Fill those places where a record was written that differs from its checksum now.

    Units that name no record's place are no damage of the log. Blocks: it flushes. Raises OSError.
    """
    for damage in damages:
        segment = log.files.find(damage.offset)
        checksums = log.checksums.find(segment) if segment is not None else None
        if segment is None or checksums is None:
            continue
        place, size = np.array([damage.offset - segment.base]), np.array([damage.length], np.int32)
        is_record = checksums.lookup(place)["size"][0] == damage.length
        if is_record and log.compare(segment, place, size).damaged[0]:
            fill(log, damage, store_timestamp_ms)
            segment.flush()
            checksums.flush()


def has_filler(log: CommitLog, damage: Damage) -> bool:
    """Whether a crash has left a filler there, but not its checksum."""
    view = log.files.view(damage.offset, damage.length)
    try:
        block = RecordBlock.parse(view, np.array([damage.length], np.int32))
        block.verify_body_crc()
    except MalformedRecordError:
        return False
    return [one.physical_offset for one in fillers_of(block)] == [damage.offset]


def _told(damaged: memoryview) -> Record:
    """What the damaged record says of its place in a queue; nothing where it is not its size."""
    try:
        decoded = decode_record(damaged, check_crc=False)
    except MalformedRecordError:
        return Record("", 0, b"")
    return decoded.record if decoded.size == len(damaged) else Record("", 0, b"")


def _encoded(told: Record, size: int, physical_offset: int, store_timestamp_ms: int) -> bytes:
    topic = told.topic if len(told.topic.encode()) + FIXED_BYTES + 1 <= size else ""
    filler = Record(
        topic,
        told.queue_id,
        b"",
        flag=FILLER_FLAG,
        queue_offset=told.queue_offset,
        physical_offset=physical_offset,
        sys_flag=TRANSACTION_ROLLBACK,
        store_timestamp_ms=max(store_timestamp_ms, 1),
    )
    body = bytes(size - len(encode_record(filler)))
    return encode_record(replace(filler, body=body))
