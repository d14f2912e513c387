"""Where batches end: after the same records, however responses came. Pure functions, no state.

A response may be short, for a segment of the log ended, the connection broke, or a filter left
messages out. So responses are cut and joined again: a batch takes records for as long as their
bytes stay within a maximum. A range that is read twice gives the same batches (row S4). The broker
fills responses by the same rule, so that as a rule a response is a batch, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Piece:
    """Records back to back, with their sizes: those that a queue holds of offsets [begin, end).

    Where a filter leaves some out, there are fewer records than offsets, and the parts of a piece
    that was cut share its offsets.
    """

    begin: int
    end: int
    records: memoryview
    sizes: NDArray[np.int32]

    def split(self, count: int) -> tuple[Piece, Piece]:
        """The first `count` records, and the others."""
        is_gapless = self.end - self.begin == len(self.sizes)
        place = int(self.sizes[:count].sum())
        return (
            Piece(
                self.begin,
                self.begin + count if is_gapless else self.end,
                self.records[:place],
                self.sizes[:count],
            ),
            Piece(
                self.begin + count if is_gapless else self.begin,
                self.end,
                self.records[place:],
                self.sizes[count:],
            ),
        )


def cut(pieces: Iterable[Piece], bytes_max: int) -> Iterator[Piece]:
    """The same records in pieces of up to `bytes_max` bytes, but at least one record.

    Offsets that were lost end a piece, too.
    """
    parts: list[Piece] = []
    for piece in pieces:
        if parts and parts[-1].end != piece.begin:
            yield from _joined(parts)
            parts = []
        rest = piece
        while (count := _fitting(rest, parts, bytes_max)) < len(rest.sizes):
            head, rest = rest.split(count)
            yield from _joined([*parts, head])
            parts = []
        parts.append(rest)
    yield from _joined(parts)


def _fitting(piece: Piece, parts: list[Piece], bytes_max: int) -> int:
    """How many records of `piece` fit behind those of `parts`."""
    gathered = sum(len(part.records) for part in parts)
    fitting = int(np.searchsorted(np.cumsum(piece.sizes), bytes_max - gathered, "right"))
    return max(fitting, 0 if gathered else 1)


def _joined(parts: list[Piece]) -> Iterator[Piece]:
    """The parts as one piece; none where they have no records."""
    filled = [part for part in parts if len(part.sizes)]
    if len(filled) > 1:
        records = memoryview(b"".join(part.records for part in filled))
        sizes = np.concatenate([part.sizes for part in filled])
        yield Piece(parts[0].begin, parts[-1].end, records, sizes)
    elif filled:
        yield Piece(parts[0].begin, parts[-1].end, filled[0].records, filled[0].sizes)
