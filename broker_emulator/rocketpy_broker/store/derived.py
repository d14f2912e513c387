"""Derived files: flushes of queues, index and checksums, and their manifest.

All of them can be rebuilt from the log. The state is whether a flush has failed. After a crash
during a flush, the next start reads the log. Only `MessageStore` uses this module.
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
    """The derived files of one store. `is_sealed` is set once a flush has failed."""

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
        """Returns the plan of a manifest of all that is dispatched, below `end_max` in the log."""
        index, progress = self._parts.index, self._dispatcher.progress
        index.drain()
        # The keys of a block are entered with the last of its queues.
        end = index.entered_end(progress.whole_end)
        if end_max is None:
            self._manifest_end = end
        else:
            end = min(end, end_max)
        times = progress.timestamp_ms, self._times.falls_below(end)
        return ManifestPlan.of(self._config, self._parts, end, *times)

    @property
    def is_manifest_old(self) -> bool:
        """True if at least a segment's size has been dispatched since the last manifest."""
        behind = self._dispatcher.end - self._manifest_end
        return behind >= self._config.commit_log_segment_bytes

    def save_manifest(self, plan: ManifestPlan) -> None:
        """Flushes the files of `plan` and saves it. Blocks. Raises OSError.

        The caller must prevent the removal of files meanwhile. A manifest never covers data that
        may not be on disk.
        """
        self.flush()
        if not self.is_sealed:
            self._directory.save(plan.make())

    def flush(self) -> None:
        """Makes queues, index and checksums durable, and then the checkpoint. Blocks.

        Raises OSError, and seals the files: later calls do nothing, and the next start rebuilds
        them from the log. After a lack of descriptors, the next call tries again.
        """
        if self.is_sealed:
            return
        parts, checkpoint = self._parts, self._checkpoint
        progress = self._dispatcher.progress
        # A power cut may remove unflushed records even if their units are flushed.
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
