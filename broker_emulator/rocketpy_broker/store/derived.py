"""What can be rebuilt from the log: queues, index and checksums are flushed and vouched for.

Holds whether a flush has failed. A crash amid a flush costs the next start a read of the log.
Used by `MessageStore` only.
Source: docs/design/storage.md section 8.4.
"""

from __future__ import annotations

from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.dispatcher import Dispatcher
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.directory import StoreDirectory
from rocketpy_broker.store.files.durable import OUT_OF_DESCRIPTORS
from rocketpy_broker.store.recovery.passes import StoreParts
from rocketpy_broker.store.recovery.store_opener import ManifestPlan
from rocketpy_broker.store.times import StoreTimes


class DerivedFiles:
    """The derived files of one store. `is_sealed` once a flush has failed."""

    def __init__(
        self,
        config: StoreConfig,
        parts: StoreParts,
        dispatcher: Dispatcher,
        times: StoreTimes,
        checkpoint: StoreCheckpoint,
        directory: StoreDirectory,
    ) -> None:
        self._config = config
        self._parts = parts
        self._dispatcher = dispatcher
        self._times = times
        self._checkpoint = checkpoint
        self._directory = directory
        self._manifest_end = 0
        self.is_sealed = False

    def plan_manifest(self, end_max: int | None = None) -> ManifestPlan:
        """Returns the manifest of what has been dispatched until now, below `end_max` in the log."""
        index, progress = self._parts.index, self._dispatcher.progress
        index.drain()
        # Keys of a block come with the last of its queues.
        end = index.entered_end(progress.whole_end)
        if end_max is None:
            self._manifest_end = end
        else:
            end = min(end, end_max)
        times = progress.timestamp_ms, self._times.falls_below(end)
        return ManifestPlan.of(self._config, self._parts, end, *times)

    @property
    def is_manifest_old(self) -> bool:
        """True if a segment's worth of records has come since the last manifest."""
        behind = self._dispatcher.end - self._manifest_end
        return behind >= self._config.commit_log_segment_bytes

    def save_manifest(self, plan: ManifestPlan) -> None:
        """Flushes the files that `plan` tells of, and save it. Blocks. Raises OSError.

        No file may go meanwhile. What may not be on the disk is never vouched for.
        """
        self.flush()
        if not self.is_sealed:
            self._directory.save(plan.make())

    def flush(self) -> None:
        """Makes queues, index and checksums durable, and the checkpoint after them. Blocks.

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
