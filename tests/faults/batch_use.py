"""A store with the services that batches need, without a server: opened, used, and let go of.

`Desk` is one run, from the start with its recovery to a stop, a kill or a power cut. Flushes happen
when somebody waits for one, so that a run is the same sequence of calls each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.config import Limits
from rocketpy_broker.services.appending import AppendService
from rocketpy_broker.services.batch_ledger import BatchLedger
from rocketpy_broker.services.batch_log import Batch
from rocketpy_broker.services.batches import BatchResult, BatchService
from rocketpy_broker.services.group_commit import GroupCommit
from rocketpy_broker.services.topic_config import TopicConfig
from rocketpy_broker.services.topics import TopicConfigManager
from rocketpy_broker.store import prepared
from rocketpy_broker.store.flush import FlushDiskType, FlushTimes
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.prepared import PreparedRange
from rocketpy_broker.store.store_config import StoreConfig
from rocketpy_broker.store.values import QueueKey
from tests.faults.images import (
    OTHER,
    QUEUE,
    QUEUE_FILE_BYTES,
    SEGMENT_BYTES,
    STORE_HOST,
    block_of,
    read_bodies,
)
from tests.store.messages import flush_log

WRITER = "a query"
WEEK_MS = 7 * 86_400_000


class FlushWhenAsked(GroupCommit):
    """No loop and no thread: whoever waits for the disk flushes."""

    async def wait(self, end_offset: int) -> None:
        """Flush what was appended, unless it is flushed, or nobody waits."""
        if self._sync and self._store.flushed_end < end_offset:
            flush_log(self._store)


@dataclass
class Desk:
    """One run of store and services over a folder."""

    folder: Path
    flush: FlushDiskType = FlushDiskType.SYNC_FLUSH
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        config = StoreConfig(
            self.folder,
            SEGMENT_BYTES,
            QUEUE_FILE_BYTES,
            self.flush,
            index_slot_count=8,
            index_entry_count_max=16,
        )
        self.store = MessageStore(config, self.clock, STORE_HOST)
        settings = self.folder / "config"
        self._topics = TopicConfigManager(settings, self.clock, "cluster", "broker")
        self.ledger = BatchLedger(settings, self.clock, lambda: self.store.flushed_end, WEEK_MS)
        flushes = FlushWhenAsked(self.store, self.clock, self.flush, FlushTimes())
        self._appends = AppendService(self.store, self._topics, flushes, Limits())
        self.batches = BatchService(
            self.store,
            self._topics,
            self.ledger,
            self._appends,
            flushes,
            self.clock,
            Limits(),
        )

    def open(self) -> None:
        """Start, and finish what an earlier run has begun."""
        self.store.open()
        self._topics.load()
        self.ledger.load()
        for queue in (QUEUE, OTHER):
            if not self._topics.exists(queue.topic):
                self._topics.update(TopicConfig(queue.topic), create_only=True)
        asyncio.run(self.batches.recover())

    def stop(self) -> None:
        """Stop cleanly."""
        self.ledger.persist()
        self.store.close()

    def crash(self) -> None:
        """Let go of everything, as the system does with the files of a killed process."""
        self.store._release()

    def prepare(self, bodies: list[bytes], token: int, queue: QueueKey = QUEUE) -> PreparedRange:
        """Append a prepared block."""
        block = block_of(queue.topic, bodies)
        sizes = np.asarray(block.sizes, ">i4").tobytes()
        result = self._appends.append(
            queue.topic, queue.queue_id, block.data.tobytes(), sizes, token
        ).result
        return PreparedRange(queue, result.physical_offset, len(block.data), len(bodies))

    def commit(self, batch_id: int, token: int, *ranges: PreparedRange) -> BatchResult:
        """Ask for a batch."""
        return asyncio.run(self.batches.commit(Batch(WRITER, batch_id, token, ranges)))

    def write(self, batch_id: int, token: int, size: int = 3) -> BatchResult:
        """Prepare a batch in both queues, the later blocks first, and commit it."""
        ranges = [
            self.prepare(messages_of(batch_id, size), token),
            self.prepare(messages_of(batch_id, 2), token, OTHER),
            self.prepare(messages_of(batch_id, size, b"more"), token),
        ]
        return self.commit(batch_id, token, *reversed(ranges))


def messages_of(batch_id: int, size: int, word: bytes = b"body") -> list[bytes]:
    """The bodies of one block."""
    return [b"%b-%d-%d" % (word, batch_id, number) for number in range(size)]


def expected_of(batch_id: int, size: int = 3) -> dict[QueueKey, list[bytes]]:
    """What `Desk.write` makes visible, by queue."""
    return {
        QUEUE: messages_of(batch_id, size, b"more") + messages_of(batch_id, size),
        OTHER: messages_of(batch_id, 2),
    }


def check_visible(desk: Desk, batch_ids: list[int]) -> None:
    """Readers see these batches, whole and in order, and nothing else."""
    for queue in (QUEUE, OTHER):
        wanted = [body for batch_id in batch_ids for body in expected_of(batch_id)[queue]]
        assert read_bodies(desk.store, queue) == wanted, queue


@contextmanager
def one_by_one() -> Iterator[None]:
    """Each record is committed by an append of its own, so that many moments lie between them."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(prepared, "PART_BYTES", 1))
        yield
