"""What of a queue is about records that the log has no more.

Files go first, then the queue forgets them: a crash in between leaves a queue that begins later.
Source: docs/design/storage.md sections 6.3 and 10.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.store.files import durable


@dataclass(frozen=True, slots=True)
class QueueExpiry:
    """Files, and offsets below `min_offset`."""

    paths: list[Path]
    min_offset: int

    def remove_files(self) -> None:
        """Removes the files, oldest first. Blocks. Raises OSError; may be called again."""
        for path in self.paths:
            durable.remove_file(path)
