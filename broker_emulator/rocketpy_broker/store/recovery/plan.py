"""The traces of the last run, read before the log is opened.

`Traces` determines where the scan starts and which records count as flushed. It writes nothing.
There are three cases:

- A clean stop of this broker: the manifest covers queues and index; the scan starts at its end.
- A crash of this broker: the scan starts at the end of the last manifest. The flushed mark
  separates a torn tail from damage.
- Another broker has started here since, or this broker left no traces: neither mark nor manifest
  counts. The log ends where RocketMQ's recovery would end it; see `foreign`.

Source: docs/design/storage.md sections 8 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.files.flushed_mark import FlushedMark, FlushedState, is_our_abort_text
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.log.scanner import Checksummed, Trust


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces in the directory. `aborted` is the abort marker's text, None if there is none.

    `started_last` is set if no other broker has started here since this broker's last start.
    """

    started_last: bool
    aborted: str | None
    mark: FlushedState | None
    manifest: Manifest | None

    @classmethod
    def read(cls, folder: Path, *, started_last: bool) -> Traces:
        """Reads the traces. Raises StoreDirectoryError for files of a newer version."""
        abort = folder / "abort"
        aborted = abort.read_text(encoding="ascii", errors="replace") if abort.exists() else None
        mark = FlushedMark(folder / "rocketpy" / "flushed").load()
        manifest = Manifest.load(folder / "rocketpy" / "manifest.json")
        return cls(started_last, aborted, mark, manifest)

    @property
    def abnormal(self) -> bool:
        """True if the last run did not stop cleanly."""
        return self.aborted is not None

    @property
    def ours(self) -> bool:
        """True if no other broker has written here since this broker's last run."""
        if self.mark is None or not self.started_last:
            return False
        return self.aborted is None or is_our_abort_text(self.aborted)

    def compared(self, log: CommitLog) -> Traces:
        """Returns the traces, corrected by the log.

        A record after this broker's clean stop was written by another broker.
        """
        stopped = self.mark is not None and self.mark.clean
        if stopped and self.mark and log.store_timestamp_ms_at(self.mark.flushed) > 0:
            return replace(self, started_last=False)
        return self

    def check_sizes(self, folder: Path, segment_bytes: int, queue_file_bytes: int) -> None:
        """Raises StoreDirectoryError if the store was created with other sizes."""
        if self.manifest is None:
            return
        for what, asked, made in (
            ("commit log segments", segment_bytes, self.manifest.segment_bytes),
            ("consume queue files", queue_file_bytes, self.manifest.queue_file_bytes),
        ):
            if asked != made:
                reason = f"was created with {what} of {made} bytes, not {asked}"
                raise StoreDirectoryError(folder, reason, "start with the size it was created with")

    def check_log(self, folder: Path, log_end: int) -> None:
        """Raises StoreDirectoryError if files of the log are missing that were on disk."""
        if self.ours and self.mark is not None and log_end < self.mark.flushed:
            raise StoreDirectoryError(
                folder,
                f"ends at byte {log_end}, but the log was written up to byte {self.mark.flushed}",
                "restore the missing files; to lose their messages, remove the folder "
                f"{folder.parent / 'rocketpy'}",
            )

    def trust(self, their_start: int) -> Trust:
        """Returns what counts as flushed; `their_start` is where RocketMQ's scan would start."""
        if self.ours and self.mark is not None:
            return Trust(self.mark.flushed, Checksummed.ALL)
        return Trust(their_start, Checksummed.NONE)
