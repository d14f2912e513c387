"""Batches that a broker before 0.2 decided but did not store.

Their blocks are prepared records in the log; the decision names them by ranges. Each is appended
again as a committed record that names the physical offset of the prepared one. Every try reads its
progress from the log, so no state is kept. Nothing creates such batches any more; this module is
needed only for stores that hold some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.services.batches.log import Decision
from rocketpy_broker.services.send.append_service import AppendService
from rocketpy_broker.store.message_store import MessageStore


@dataclass(slots=True)
class Progress:
    """Progress of one batch.

    `stored_count` records are stored, up to `log_end`; the next is at `offset` in range `index`.
    """

    stored_count: int
    log_end: int
    index: int = 0
    offset: int = 0


class OldKind:
    """A finisher of such batches."""

    def __init__(self, store: MessageStore, appends: AppendService) -> None:
        self._store = store
        self._appends = appends

    async def run(self, decision: Decision) -> Progress:
        """Appends the missing records. Raises StoreError; the next call continues there."""
        progress = await self._progress(decision)
        ranges = decision.batch.ranges
        while progress.index < len(ranges):
            await self._appends.room()
            await self._appends.large_writes.over()
            wanted = ranges[progress.index]
            begin = max(progress.offset, wanted.offset)
            part = self._store.prepared.committed_part(wanted, begin)
            if part.block is not None:
                result = self._store.append(wanted.queue, part.block)
                progress.log_end = result.end_offset
                progress.stored_count += result.record_count
            progress.offset = part.end
            if part.end >= wanted.end:
                progress.index, progress.offset = progress.index + 1, 0
            await take_slot()
        return progress

    async def _progress(self, decision: Decision) -> Progress:
        ranges = decision.batch.ranges
        begins = np.array([wanted.offset for wanted in ranges], np.int64)
        ends = np.array([wanted.end for wanted in ranges], np.int64)
        order = np.argsort(begins)
        progress = Progress(0, self._store.positions().log_end)
        for committed in self._store.prepared.committed_from(decision.physical_offset):
            places = np.searchsorted(begins[order], committed, "right") - 1
            own = np.flatnonzero((places >= 0) & (committed < ends[order][places]))
            if len(own):
                progress.index = int(order[places[own[-1]]])
                progress.offset = self._store.prepared.end_of(int(committed[own[-1]]))
                progress.stored_count += len(own)
            await take_slot()
        if progress.offset >= ranges[progress.index].end:
            progress.index, progress.offset = progress.index + 1, 0
        return progress
