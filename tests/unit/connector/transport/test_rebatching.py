"""Batches end after the same records, regardless of how responses were cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketpy.transport.rebatching import RecordChunk, rebatch

BYTES_MAX = 100
SIZES = st.lists(st.integers(1, 150), min_size=1, max_size=40)


def pieces_of(
    sizes: Sequence[int], lengths: Sequence[int], begin: int = 7
) -> Iterator[RecordChunk]:
    """Yields records of these sizes in responses of these lengths, and one more for the rest."""
    content = b"".join(bytes([index]) * size for index, size in enumerate(sizes))
    first = place = 0
    for length in [*lengths, len(sizes)]:
        part = np.array(sizes[first : first + length], np.int32)
        end = place + int(part.sum())
        offsets = (begin + first, begin + first + len(part))
        yield RecordChunk(*offsets, memoryview(content)[place:end], part)
        first, place = first + len(part), end


def shapes(chunks: Iterator[RecordChunk]) -> list[tuple[int, int, bytes, list[int]]]:
    """Returns chunks in a comparable form."""
    return [(p.begin, p.end, bytes(p.records), p.sizes.tolist()) for p in chunks]


@given(SIZES, st.lists(st.integers(0, 9)))
def test_s4_batches_do_not_depend_on_responses(sizes: list[int], lengths: list[int]) -> None:
    whole = shapes(rebatch(pieces_of(sizes, []), BYTES_MAX))
    assert shapes(rebatch(pieces_of(sizes, lengths), BYTES_MAX)) == whole


@given(SIZES, st.lists(st.integers(0, 9)))
def test_s4_batches_hold_every_record_and_are_as_large_as_they_may(
    sizes: list[int], lengths: list[int]
) -> None:
    found = list(rebatch(pieces_of(sizes, lengths), BYTES_MAX))
    assert [size for chunk in found for size in chunk.sizes.tolist()] == sizes
    assert all(chunk.end - chunk.begin == len(chunk.sizes) for chunk in found)
    for chunk, following in itertools.pairwise(found):
        assert chunk.end == following.begin
        assert chunk.sizes.sum() <= BYTES_MAX or len(chunk.sizes) == 1
        assert chunk.sizes.sum() + following.sizes[0] > BYTES_MAX


def test_a_response_that_is_a_batch_is_not_copied() -> None:
    [response] = list(pieces_of([40, 60], []))[:1]
    [chunk] = rebatch(iter([response]), BYTES_MAX)
    assert chunk.records is response.records


def test_lost_offsets_end_a_batch() -> None:
    before, behind = pieces_of([10], []), pieces_of([10], [], begin=9)
    found = list(rebatch([next(before), next(behind)], BYTES_MAX))
    assert [(chunk.begin, chunk.end) for chunk in found] == [(7, 8), (9, 10)]


def test_c03_pieces_without_records_are_passed_over() -> None:
    nothing = RecordChunk(0, 50, memoryview(b""), np.empty(0, np.int32))
    some = RecordChunk(50, 90, memoryview(b"abc"), np.array([3], np.int32))
    assert shapes(rebatch([nothing, some], BYTES_MAX)) == [(0, 90, b"abc", [3])]
    assert list(rebatch([nothing], BYTES_MAX)) == []


def test_c03_parts_of_a_piece_with_gaps_share_its_offsets() -> None:
    sparse = RecordChunk(0, 90, memoryview(bytes(140)), np.array([70, 70], np.int32))
    found = list(rebatch([sparse], BYTES_MAX))
    assert [(chunk.begin, chunk.end, len(chunk.sizes)) for chunk in found] == [(0, 90, 1)] * 2
