"""Opening of a store: creation, loading and recovery of its parts.

The loaded parts are compared with the traces of the last run. If a crash interrupts the opening,
the next one completes it.
Source: docs/design/storage.md sections 1 (folder-content rules), 8.4 and 10.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.files.checkpoint import StoreCheckpoint
from rocketpy_broker.store.files.links import read_queue_folders
from rocketpy_broker.store.files.manifest import Manifest
from rocketpy_broker.store.index.dispatch import IndexDispatch
from rocketpy_broker.store.log.checksums import SegmentChecksums
from rocketpy_broker.store.log.commit_log import CommitLog
from rocketpy_broker.store.queues.consume_queue import ConsumeQueue
from rocketpy_broker.store.queues.table import ConsumeQueueTable
from rocketpy_broker.store.recovery.foreign import scan_start
from rocketpy_broker.store.recovery.passes import Recovery, RecoveryResult, StoreParts
from rocketpy_broker.store.recovery.plan import Traces
from rocketpy_broker.store.recovery.quarantine import NAMED_MAX, Quarantine
from rocketpy_broker.store.values import QueueKey

logger = logging.getLogger(__name__)


def make_parts(config: StoreConfig, clock: Clock) -> StoreParts:
    """Returns the parts of a store, not loaded yet."""
    folder = config.folder
    log = CommitLog(
        folder / "commitlog", folder / "rocketpy" / "checksums", config.commit_log_segment_bytes
    )
    queues = ConsumeQueueTable(
        folder / "consumequeue",
        folder / "config" / "deletedTopics.json",
        config.consume_queue_file_bytes,
    )
    index = IndexDispatch(folder / "index", clock, config, log.store_timestamp_ms_at)
    quarantine = Quarantine(folder / "rocketpy" / "quarantine")
    return StoreParts(log, queues, index, quarantine, config.delay_levels)


def recover(
    config: StoreConfig, parts: StoreParts, checkpoint: StoreCheckpoint, *, started_last: bool
) -> tuple[RecoveryResult, Manifest | None]:
    """Loads the parts and recovers them. Raises StoreDirectoryError, OSError.

    Returns the manifest of a clean stop, if there was one.
    """
    folders = read_queue_folders(config.folder)
    traces = Traces.read(config.folder, started_last=started_last)
    traces.check_sizes(
        config.folder, config.commit_log_segment_bytes, config.consume_queue_file_bytes
    )
    parts.log.load()
    traces = traces.compared(parts.log)
    traces.check_log(config.folder / "commitlog", parts.log.files.end)
    in_doubt: list[str] = []
    manifest = traces.manifest if traces.ours else None
    known = manifest.queues if manifest else {}
    for fault in parts.queues.load(folders, own_sizes=traces.manifest is not None, known=known):
        kept = parts.quarantine.move(fault.folder, f"consumequeue-{fault.name}")
        if len(in_doubt) < NAMED_MAX:
            logger.error("%s. The queue is rebuilt; its old files are in %s", fault.error, kept)
        in_doubt.append(f"consume queue {fault.name}")
    if len(in_doubt) > NAMED_MAX:
        folder = parts.quarantine.folder
        logger.error("%d queues are rebuilt; their old files are in %s", len(in_doubt), folder)
    in_doubt += parts.index.load()
    checkpoint.load()
    queues_end = max((queue.physical_end for queue in parts.queues), default=-1)
    their_start = scan_start(parts.log, queues_end, checkpoint, abnormal=traces.abnormal)
    result = Recovery(
        parts,
        traces.trust(their_start),
        manifest,
        abnormal=traces.abnormal,
        in_doubt=in_doubt,
        queues_end=queues_end,
    ).run()
    parts.quarantine.log_count()
    if traces.abnormal or result.records_scanned > 0:
        # A killed run, or a killed start, leaves unflushed files and names that look valid. The
        # removal of log segments relies on them from now on.
        durable.sync_whole_store(config.folder)
    return result, None if traces.abnormal else manifest


@dataclass(frozen=True, slots=True)
class ManifestPlan:
    """The queues and files of a manifest; created on the store's thread."""

    config: StoreConfig
    end: int
    store_timestamp_ms: int
    queues: list[tuple[QueueKey, ConsumeQueue]]
    index: IndexDispatch
    checksums: list[SegmentChecksums]
    store_time_falls: list[int]

    @classmethod
    def of(
        cls,
        config: StoreConfig,
        parts: StoreParts,
        end: int,
        store_timestamp_ms: int,
        falls: list[int],
    ) -> ManifestPlan:
        """Returns the plan for records below `end`, the last with that timestamp.

        `falls` are the manifest's `store_time_falls`.
        """
        queues, checksums = list(parts.queues.items()), parts.log.checksums.below(end)
        return cls(config, end, store_timestamp_ms, queues, parts.index, checksums, falls)

    def make(self) -> Manifest:
        """Returns the manifest of these records. Blocks on any thread: it may read whole files.

        Files may grow meanwhile, and must not be removed.
        """
        end = self.end
        return Manifest(
            end,
            self.config.commit_log_segment_bytes,
            self.config.consume_queue_file_bytes,
            self.store_timestamp_ms,
            {key: queue.prefix_crcs(end) for key, queue in self.queues},
            self.index.prefixes(end),
            {one.path.name: one.prefix(end - one.base) for one in self.checksums},
            tuple(self.store_time_falls),
        )
