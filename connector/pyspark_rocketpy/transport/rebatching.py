"""Batch ends that depend on the records alone, not on the responses.

A response may be short: a log segment ended, the connection broke, or a filter left messages out.
So responses are cut and joined again. A batch takes records while their bytes stay within a
maximum. A range that is read twice gives the same batches. The broker fills responses by the same
rule. So a response usually is a batch, and nothing is copied.

The chunks of every transport account for each offset of their range. An offset has no record for
one of three reasons: a filter, a loss that the transport has raised or logged, or a wrong answer. A
wrong answer is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_rocketpy.errors import OffsetError
from pyspark_rocketpy.offsets import QueueRange
from rocketpy_proto.record import (
    MalformedRecordError,
    QueueSpan,
    RecordBlock,
    UnexpectedRecordsError,
)


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Records of a queue's offsets [begin, end), back to back, with their sizes.

    There are fewer records than offsets if a filter leaves some out. The parts of a chunk that was
    cut then share its offsets.
    """

    begin: int
    end: int
    records: memoryview
    sizes: NDArray[np.int32]

    def split(self, count: int) -> tuple[RecordChunk, RecordChunk]:
        """Returns the first `count` records, and the remaining ones."""
        is_gapless = self.end - self.begin == len(self.sizes)
        place = int(self.sizes[:count].sum())
        return (
            RecordChunk(
                self.begin,
                self.begin + count if is_gapless else self.end,
                self.records[:place],
                self.sizes[:count],
            ),
            RecordChunk(
                self.begin + count if is_gapless else self.begin,
                self.end,
                self.records[place:],
                self.sizes[count:],
            ),
        )


def rebatch(chunks: Iterable[RecordChunk], bytes_max: int) -> Iterator[RecordChunk]:
    """Yields the same records in chunks of up to `bytes_max` bytes, but at least one record.

    Lost offsets also end a chunk.
    """
    parts: list[RecordChunk] = []
    for chunk in chunks:
        if parts and parts[-1].end != chunk.begin:
            yield from _joined(parts)
            parts = []
        rest = chunk
        while (count := _fitting(rest, parts, bytes_max)) < len(rest.sizes):
            head, rest = rest.split(count)
            yield from _joined([*parts, head])
            parts = []
        parts.append(rest)
    yield from _joined(parts)


def _fitting(chunk: RecordChunk, parts: list[RecordChunk], bytes_max: int) -> int:
    """Returns how many records of `chunk` fit after the records of `parts`."""
    gathered = sum(len(part.records) for part in parts)
    fitting = int(np.searchsorted(np.cumsum(chunk.sizes), bytes_max - gathered, "right"))
    return max(fitting, 0 if gathered else 1)


def _joined(parts: list[RecordChunk]) -> Iterator[RecordChunk]:
    """Yields the parts as one chunk; nothing if they have no records."""
    filled = [part for part in parts if len(part.sizes)]
    if len(filled) > 1:
        records = memoryview(b"".join(part.records for part in filled))
        sizes = np.concatenate([part.sizes for part in filled])
        yield RecordChunk(parts[0].begin, parts[-1].end, records, sizes)
    elif filled:
        yield RecordChunk(parts[0].begin, parts[-1].end, filled[0].records, filled[0].sizes)


def accounted(
    chunks: Iterable[RecordChunk], part: QueueRange, *, is_filtered: bool
) -> Iterator[RecordChunk]:
    """Yields the chunks, after checking that each one follows the previous one in the range.

    Raises OffsetError, also if a chunk without a filter has fewer records than offsets.
    """
    offset = part.begin
    for chunk in chunks:
        count, offset_count = len(chunk.sizes), chunk.end - chunk.begin
        is_next = offset <= chunk.begin < chunk.end <= part.end
        if not is_next or count > offset_count or (count < offset_count and not is_filtered):
            reason = f"{count} records for offsets [{chunk.begin}, {chunk.end})"
            raise wrong_answer(part, offset, reason)
        offset = chunk.end
        yield chunk


def checked_records(
    chunk: RecordChunk, part: QueueRange, offset: int, *, is_filtered: bool
) -> RecordBlock:
    """Returns the records of a chunk, checked to be whole and the range's own from `offset` on.

    Raises OffsetError.
    """
    try:
        block = RecordBlock.parse(chunk.records, chunk.sizes)
        block.verify_body_crc()
        span = QueueSpan(part.topic, part.queue_id, offset, chunk.end)
        block.verify_span(span, is_gapless=not is_filtered)
    except MalformedRecordError as error:
        raise OffsetError(
            f"{part.rest(offset)} contain a damaged record ({error}); check the broker's store, "
            "or start after the record"
        ) from error
    except UnexpectedRecordsError as error:
        raise wrong_answer(part, offset, str(error)) from error
    return block


def wrong_answer(part: QueueRange, offset: int, reason: str) -> OffsetError:
    """Returns the error for an answer that contradicts itself or the request."""
    return OffsetError(
        f"{part.rest(offset)}: the broker sent other records than requested: {reason}; restart "
        "the broker, which then checks its consume queues"
    )


def lost_end(
    offset: int, end: int, *, next_offset: int, min_offset: int, max_offset: int, is_moved: bool
) -> int | None:
    """Returns the end of the offsets that are gone according to an answer without records.

    None if the queue still holds `offset`: then nothing is lost, and the next answer may have the
    message. If a broker moves a group's offset (`is_moved`), its next offset shows no loss.
    """
    if next_offset > offset and not is_moved:
        return min(next_offset, end)
    if offset < min_offset:
        return min(min_offset, end)
    return end if offset >= max_offset else None
