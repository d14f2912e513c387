"""What a start finds out before it reads the log: how the last run ended, and what can be believed.

`Traces` is what the last run left behind; `plan` turns it into where the scan begins and what
counts as flushed. Writes nothing.

- A clean stop of ours: the manifest vouches for queues and index, and the scan begins at its end.
- A crash of ours: the same, from the last manifest on; the mark tells a torn tail from damage.
- Another broker was here since (its pid in `abort`, or no traces of ours): the whole log is read,
and checked as RocketMQ would; the checkpoint says what had been flushed.

Source: spec/storage.md sections 8 and 10; row S09.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.flushed_mark import FlushedMark, Mark, is_our_abort_text
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.log.scanner import Checksummed, Trust

ALWAYS_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Traces:
    """What lies in the directory. `aborted`: the marker's text, None where there is none."""

    aborted: str | None
    mark: Mark | None
    manifest: Manifest | None

    @classmethod
    def read(cls, folder: Path) -> Traces:
        """Read them. Raises StoreDirectoryError for what a newer version has written."""
        abort = folder / "abort"
        aborted = abort.read_text(encoding="ascii", errors="replace") if abort.exists() else None
        mark = FlushedMark(folder / "rocketpy" / "flushed").load()
        return cls(aborted, mark, Manifest.load(folder / "rocketpy" / "manifest.json"))

    @property
    def abnormal(self) -> bool:
        """Whether the last run did not stop cleanly."""
        return self.aborted is not None

    @property
    def ours(self) -> bool:
        """Whether nobody else can have changed what we wrote: only added to it, if anything."""
        if self.mark is None:
            return False
        return self.mark.clean or is_our_abort_text(self.aborted)

    def check_sizes(self, folder: Path, segment_bytes: int, queue_file_bytes: int) -> None:
        """Raises StoreDirectoryError where the store was made with other sizes."""
        if self.manifest is None:
            return
        for what, asked, made in (
            ("commit log segments", segment_bytes, self.manifest.segment_bytes),
            ("consume queue files", queue_file_bytes, self.manifest.queue_file_bytes),
        ):
            if asked != made:
                reason = f"was made with {what} of {made} bytes, not {asked}"
                raise StoreDirectoryError(folder, reason, "start with the size it was made with")

    def check_log(self, folder: Path, log_end: int) -> None:
        """Raises StoreDirectoryError where files of the log are missing that were on disk."""
        if self.ours and self.mark is not None and log_end < self.mark.flushed:
            raise StoreDirectoryError(
                folder,
                f"ends at {log_end}, but the log was written up to {self.mark.flushed}",
                "restore the missing files; to give up what was in them, remove the folder "
                f"{folder.parent / 'rocketpy'}",
            )

    def trust(self, checkpoint: StoreCheckpoint) -> Trust:
        """What counts as flushed."""
        if self.ours and self.mark is not None and not self.mark.clean:
            return Trust(self.mark.flushed, 0, Checksummed.ALL)
        timestamp_ms = checkpoint.physic_msg_timestamp_ms if self.abnormal else ALWAYS_MS
        if self.ours and self.mark is not None:
            # RocketMQ may have gone on behind the end of our clean stop.
            return Trust(self.mark.flushed, timestamp_ms, Checksummed.SOME)
        return Trust(0, timestamp_ms, Checksummed.NONE)
