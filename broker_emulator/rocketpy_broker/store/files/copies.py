"""Small files that hold the same bytes twice, each copy with its CRC: a flipped bit costs nothing.

A crash leaves the file as it was, or whole; see `durable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from rocketpy_broker.store.files import durable

logger = logging.getLogger(__name__)
COPIES = 2


def replace_copies(path: Path, copy: bytes) -> None:
    """Let the file hold `copy`, twice. Blocks. Raises OSError."""
    durable.replace_bytes(path, copy * COPIES)


def sound_copy(
    path: Path, data: bytes, length: int, is_sound: Callable[[bytes], bool]
) -> bytes | None:
    """Returns the first sound one of the copies in `data`, what `path` holds; None where none is.

    Each has `length` bytes. A file that is damaged besides is mended. Blocks. Raises OSError.
    """
    for copy in (data[:length], data[length:]):
        if is_sound(copy):
            if data != copy * COPIES:
                logger.warning("%s was damaged in one of its copies and is mended", path)
                replace_copies(path, copy)
            return copy
    return None
