"""Flushing what can be rebuilt from the log: queues, index and checksums, and the checkpoint.

Holds whether that has failed. A crash amid a flush costs the next start a read of the log.
Used by `MessageStore` only.
Source: spec/storage.md section 8.4; row F08.
"""

from __future__ import annotations

from rocketpy_broker.store.dispatching import Dispatcher
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.directory import StoreDirectory
from rocketpy_broker.store.files.durable import OUT_OF_DESCRIPTORS
from rocketpy_broker.store.recovery.passes import StoreParts


class DerivedFiles:
    """The derived files of one store. `is_sealed` once a flush has failed."""

    def __init__(
        self,
        parts: StoreParts,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
        directory: StoreDirectory,
    ) -> None:
        self._parts = parts
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._directory = directory
        self.is_sealed = False

    def flush(self) -> None:
        """Make queues, index and checksums durable, and the checkpoint after them. Blocks.

        Raises OSError, and then does nothing any more: they can all be rebuilt from the log, and
        the next start does so. But where descriptors are lacking, the next call does it.
        """
        if self.is_sealed:
            return
        parts, checkpoint = self._parts, self._checkpoint
        progress = self._dispatcher.progress
        # A power cut may take records that are not flushed, though their units are.
        logics_end = min(progress.end, parts.log.flushed)
        try:
            self._directory.check()
            parts.queues.flush()
            parts.index.flush()
            parts.log.checksums.flush()
        except OSError as error:
            self.is_sealed = error.errno not in OUT_OF_DESCRIPTORS
            raise
        checkpoint.logics_msg_timestamp_ms = progress.timestamp_ms
        checkpoint.logics_physical_offset = logics_end
        checkpoint.index_msg_timestamp_ms = parts.index.end_timestamp_of_full_ms
        checkpoint.save()
        self._directory.flush()
