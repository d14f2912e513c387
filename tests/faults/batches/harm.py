"""Faults of staging files and of their disk, with the frames that stay readable.

A file may be removed, cut short, hold another file's content, or have one bit flipped, anywhere.
The disk may be full from any call on, even for an overwrite, as on a copy-on-write disk. The last
write before is a short one, and no earlier write is lost. Nothing here harms two files at a time.
"""

from __future__ import annotations

import bisect
import errno
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from unittest import mock

from rocketpy_broker.store.staging.frames import HEAD_BYTES

# The start of every frame; no body of a test holds it.
MAGIC = re.compile(b"RPSF")


class Harm(Enum):
    """A fault of a staging file."""

    REMOVED = 1
    CUT = 2
    BIT = 3
    SWAPPED = 4


def do_harm(harm: Harm, path: Path, other: Path, dice: random.Random) -> list[bool]:
    """Harms a sealed file; returns for each of its block frames whether it is still readable."""
    content = bytearray(path.read_bytes())
    begins = [found.start() for found in MAGIC.finditer(content)]
    # The first frame names the file's owner, the last one is the seal.
    ends = begins[2:]
    if harm is Harm.REMOVED:
        path.unlink()
    elif harm is Harm.SWAPPED:
        path.write_bytes(other.read_bytes())
    elif harm is Harm.CUT:
        size = dice.randrange(len(content))
        os.truncate(path, size)
        return [end <= size for end in ends]
    else:
        place = dice.randrange(len(content))
        content[place] ^= 1 << dice.randrange(8)
        path.write_bytes(content)
        hit = bisect.bisect(begins, place) - 1
        # Without its head the end of a frame is unknown.
        is_head = place - begins[hit] < HEAD_BYTES
        if hit > 0:
            return [
                frame < hit or (frame > hit and not is_head) for frame in range(1, len(begins) - 1)
            ]
    return [False] * len(ends)


class FullDisk:
    """A disk on which writes and allocations fail after `calls_left` calls, while `watched`."""

    def __init__(self) -> None:
        self.calls_left: int | None = None
        self._write, self._allocate = os.pwrite, os.posix_fallocate

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Replaces the disk of this process."""
        with (
            mock.patch.object(os, "pwrite", self._pwrite),
            mock.patch.object(os, "posix_fallocate", self._posix_fallocate),
        ):
            yield

    def _pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        part = data[: len(data) // 2] if self.calls_left == 1 else data
        self._take()
        return self._write(descriptor, part or data, position)

    def _posix_fallocate(self, descriptor: int, position: int, length: int) -> None:
        self._take()
        self._allocate(descriptor, position, length)

    def _take(self) -> None:
        if self.calls_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.calls_left is not None:
            self.calls_left -= 1
