"""Small files with two copies of their content, each with a CRC.

One flipped bit therefore loses nothing. A crash leaves the old or the new file, whole; see
`durable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.store.files import durable

logger = logging.getLogger(__name__)
COPIES = 2


def replace_copies(path: Path, copy: bytes) -> None:
    """Replaces the file's content with `copy`, twice. Blocks. Raises OSError."""
    durable.replace_bytes(path, copy * COPIES)


def sound_copy(
    path: Path, data: bytes, length: int, is_sound: Callable[[bytes], bool]
) -> bytes | None:
    """Returns the first sound copy in `data`, the content of `path`; None if there is none.

    Each copy has `length` bytes. A file with one damaged copy is repaired. Blocks.
    Raises OSError.
    """
    for copy in (data[:length], data[length:]):
        if is_sound(copy):
            if data != copy * COPIES:
                logger.warning("%s was damaged in one of its copies; the broker repaired it", path)
                replace_copies(path, copy)
            return copy
    return None
