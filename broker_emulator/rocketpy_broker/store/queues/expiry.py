"""Removal of a queue's files whose records the log no longer has.

The files are removed first, then the queue drops them. A crash in between leaves a queue that
begins later.
Source: docs/design/storage.md sections 6.3 and 10.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.store.files import durable


@dataclass(frozen=True, slots=True)
class QueueExpiry:
    """Files to remove, and the lowest queue offset that remains."""

    paths: list[Path]
    min_offset: int

    def remove_files(self) -> None:
        """Removes the files, oldest first. Blocks. Raises OSError; may be called again."""
        for path in self.paths:
            durable.remove_file(path)
