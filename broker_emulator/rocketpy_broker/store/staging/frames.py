"""Frames, the parts of a staging file.

A file has one *attempt* frame, which identifies the attempt, then *block* frames, then a *seal*:

    | magic "RPSF"   4 | kind             1 | ends block     1 | topic bytes     2 |
    | block number   8 | first record     8 | record count   4 | queue id        4 |
    | key count      4 | records bytes    4 | payload CRC    4 | head CRC        4 |

The payload follows this head. A block frame's payload has the topic, n record sizes (4 bytes) and n
tags codes (8). The m index keys' hashes (4) and rows (4) follow, and then the n records. Numbers
are big-endian. `first record` is the number of the file's records before the frame. An attempt's
payload is JSON. A seal has none: its block number and first record are the file's counts.

A client's block is cut into frames of about `staging_frame_bytes`. Each of them is read, checked
and appended at once. The last of them ends the block. A frame torn by a crash has no valid CRC; a
file ends before its first such frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.record import RecordBlock
from rocketpy_proto.record.crc import body_crc, crc_of_parts
from rocketpy_proto.record.index_keys import IndexKeys, TagsAndKeys

_HEAD = struct.Struct(">4sBBHqqiiiiI")
_CRC = struct.Struct(">I")
HEAD_BYTES = _HEAD.size + _CRC.size
_MAGIC = b"RPSF"
_SIZE, _CODE, _HASH, _ROW = (np.dtype(form) for form in (">i4", ">i8", ">i4", ">i4"))


class FrameKind(IntEnum):
    """The kind of a frame's content. WAITING is a block that may have delayed records."""

    ATTEMPT = 1
    BLOCK = 2
    SEAL = 3
    WAITING = 4


@dataclass(frozen=True, slots=True)
class FrameHead:
    """A frame's head; see the module.

    `record_bytes` is the size of its records, or of its JSON.
    """

    kind: FrameKind
    ends_block: bool
    topic_bytes: int
    block_number: int
    first_record: int
    record_count: int
    queue_id: int
    key_count: int
    record_bytes: int
    payload_crc: int

    @property
    def beside_bytes(self) -> int:
        """Bytes of the payload before the records."""
        per_record = _SIZE.itemsize + _CODE.itemsize
        per_key = _HASH.itemsize + _ROW.itemsize
        return self.topic_bytes + per_record * self.record_count + per_key * self.key_count

    @property
    def frame_bytes(self) -> int:
        """Bytes of head and payload."""
        return HEAD_BYTES + self.beside_bytes + self.record_bytes

    def to_bytes(self) -> bytes:
        """Returns the head as it is stored in the file."""
        data = _HEAD.pack(
            _MAGIC,
            self.kind,
            self.ends_block,
            self.topic_bytes,
            self.block_number,
            self.first_record,
            self.record_count,
            self.queue_id,
            self.key_count,
            self.record_bytes,
            self.payload_crc,
        )
        return data + _CRC.pack(body_crc(data))

    @classmethod
    def parse(cls, data: bytes) -> FrameHead | None:
        """Returns the head in HEAD_BYTES bytes; None if they are not a head."""
        if len(data) < HEAD_BYTES or data[:4] != _MAGIC:
            return None
        if _CRC.unpack_from(data, _HEAD.size) != (body_crc(data[: _HEAD.size]),):
            return None
        _, kind, ends_block, *numbers = _HEAD.unpack_from(data)
        return cls(FrameKind(kind), bool(ends_block), *numbers)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame to write: head, and payload in two parts, so that no record is copied."""

    head: FrameHead
    beside: bytes
    records: memoryview


@dataclass(frozen=True, slots=True)
class StagedRecords:
    """Records of one queue, or of their OWN_QUEUES, with their parsed properties.

    Records that were read from a file are in a writable buffer. `stored_sizes` are the records'
    sizes in the log, if they differ: a delayed record grows while it waits.
    """

    queue: QueueKey
    block: RecordBlock
    found: TagsAndKeys
    stored_sizes: NDArray[np.int32] | None = None

    @property
    def queue_id_max(self) -> int:
        """The highest queue of the records."""
        if self.queue.queue_id == OWN_QUEUES:
            return int(self.block.header["queue_id"].max())
        return self.queue.queue_id


@dataclass(frozen=True, slots=True)
class BlockPosition:
    """The place of a block in its file: its number, and the number of records before it."""

    block_number: int
    first_record: int


def attempt_frame(content: bytes) -> Frame:
    """Returns a file's first frame."""
    return _frame(FrameKind.ATTEMPT, BlockPosition(0, 0), content)


def seal_frame(end: BlockPosition) -> Frame:
    """Returns a file's last frame; `end` has the counts of its blocks and records."""
    return _frame(FrameKind.SEAL, end, b"")


def _frame(kind: FrameKind, place: BlockPosition, payload: bytes) -> Frame:
    numbers = (place.block_number, place.first_record, 0, 0, 0, len(payload), body_crc(payload))
    return Frame(FrameHead(kind, True, 0, *numbers), b"", memoryview(payload))


def block_frames(records: StagedRecords, place: BlockPosition, frame_bytes: int) -> Iterator[Frame]:
    """Yields the frames of a client's block, each of at most `frame_bytes`, or of one record."""
    block, keys = records.block, records.found.index_keys
    topic = records.queue.topic.encode()
    kind = FrameKind.WAITING if records.found.may_wait else FrameKind.BLOCK
    ends = block.positions + block.sizes
    sizes = block.sizes if records.stored_sizes is None else records.stored_sizes
    stored_ends = np.cumsum(sizes, dtype=np.int64)
    begin = 0
    while begin < len(block):
        start = int(block.positions[begin])
        room_end = int(stored_ends[begin]) - int(sizes[begin]) + frame_bytes
        stop = max(begin + 1, int(np.searchsorted(stored_ends, room_end, "right")))
        first_key, last_key = np.searchsorted(keys.row, [begin, stop])
        parts = (
            topic,
            block.sizes[begin:stop].astype(_SIZE).data,
            records.found.tags_codes[begin:stop].astype(_CODE).data,
            keys.hash[first_key:last_key].astype(_HASH).data,
            (keys.row[first_key:last_key] - begin).astype(_ROW).data,
        )
        beside, own = b"".join(parts), block.data[start : int(ends[stop - 1])].data
        head = FrameHead(
            kind,
            stop == len(block),
            len(topic),
            place.block_number,
            place.first_record + begin,
            stop - begin,
            records.queue.queue_id,
            int(last_key - first_key),
            len(own),
            crc_of_parts(beside, own),
        )
        yield Frame(head, beside, own)
        begin = stop


def records_of(head: FrameHead, payload: NDArray[np.uint8], begin: int = 0) -> StagedRecords:
    """Returns the records of a block frame, from its record `begin` on.

    `payload` must be writable and checked by its CRC.
    """
    position = 0

    def take(count: int, form: np.dtype[np.generic]) -> NDArray[np.generic]:
        nonlocal position
        taken = np.frombuffer(payload, form, count, position)
        position += count * form.itemsize
        return taken

    topic = take(head.topic_bytes, np.dtype(np.uint8)).tobytes().decode()
    sizes = take(head.record_count, _SIZE).astype(np.int32)
    tags_codes = take(head.record_count, _CODE).astype(np.int64)
    hashes = take(head.key_count, _HASH).astype(np.int32)
    rows = take(head.key_count, _ROW).astype(np.int64)
    position += int(sizes[:begin].sum())
    block = RecordBlock.parse(payload.data[position:], sizes[begin:])
    kept = rows >= begin
    keys = IndexKeys(hashes[kept], rows[kept] - begin)
    found = TagsAndKeys(tags_codes[begin:], keys, head.kind is FrameKind.WAITING)
    return StagedRecords(QueueKey(topic, head.queue_id), block, found)


def joined(some: Sequence[StagedRecords]) -> StagedRecords:
    """Returns adjacent records of one topic as one block; none of them may be delayed.

    Records of several queues become records of their OWN_QUEUES, in the same order.
    """
    blocks, founds = [one.block for one in some], [one.found for one in some]
    sizes = np.concatenate([block.sizes for block in blocks])
    block = RecordBlock.parse(np.concatenate([block.data for block in blocks]).data, sizes)
    begins = np.cumsum([0, *map(len, blocks)])
    queue = some[0].queue
    if any(one.queue != queue for one in some):
        queue = QueueKey(queue.topic, OWN_QUEUES)
        for one, begin, end in zip(some, begins[:-1], begins[1:], strict=True):
            if one.queue.queue_id != OWN_QUEUES:
                block.header["queue_id"][begin:end] = one.queue.queue_id
    keys = [found.index_keys for found in founds]
    rows = [one.row + begin for one, begin in zip(keys, begins[:-1], strict=True)]
    index_keys = IndexKeys(np.concatenate([one.hash for one in keys]), np.concatenate(rows))
    codes = np.concatenate([found.tags_codes for found in founds])
    return StagedRecords(queue, block, TagsAndKeys(codes, index_keys))
