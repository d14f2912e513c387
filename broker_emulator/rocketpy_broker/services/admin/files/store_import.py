"""Import of message files into a stopped store.

All files are read and encoded twice: first to check that every message can be stored, then to store
them. So a bad file is refused before anything is written. Only a full or failing disk can stop an
import midway; the error then contains the number of stored messages. A crash leaves a part of the
messages, in a store that recovery can repair. On return all messages are on disk, and the store is
cleanly stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import MessageFileError, StoreClosedError, TopicNotExistError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.admin.files.message_files import MessageFile
from rocketpy_broker.services.admin.files.message_rows import by_queue
from rocketpy_broker.services.flush.group_commit import flush_now
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.check.read_only import StoreReadLock, StoreSizes
from rocketpy_broker.store.config import FlushDiskType, StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.record import Host, RecordBlock, UnencodableRecordError

# Bytes to append before a flush.
FLUSH_BYTES = 64 << 20
STORE_HOST = Host.parse("127.0.0.1:0")
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The contents of the files: queues that each topic needs, and messages per file."""

    queue_nums: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)

    @property
    def message_count(self) -> int:
        """The messages of all files."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class _Block:
    queue: QueueKey
    block: RecordBlock


class StoreImport:
    """One import of files into the store in `folder`; call `plan`, then `run`."""

    def __init__(
        self,
        folder: Path,
        sizes: StoreSizes,
        paths: Sequence[Path],
        topic: str | None,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._sizes = sizes
        self._topic = topic
        self._clock = clock
        self._files = [MessageFile(path, has_topic=topic is not None) for path in paths]
        names = BrokerConfig(folder)
        self._topics = TopicConfigManager(
            folder / "config", clock, names.cluster_name, names.broker_name
        )

    def plan(self, advance: Advance = lambda _count: None) -> ImportPlan:
        """Reads all files once and writes nothing.

        Raises MessageFileError, TopicIllegalError, StoreLockedError.
        """
        if (self._folder / "commitlog").is_dir():
            with StoreReadLock(self._folder):
                pass
        plan = ImportPlan()
        for file in self._files:
            count = 0
            for one in self._blocks(file):
                queue = one.queue
                needed = max(plan.queue_nums.get(queue.topic, 0), queue.queue_id + 1)
                plan.queue_nums[queue.topic] = needed
                count += len(one.block)
                advance(len(one.block))
            plan.counts.append(count)
        for topic, nums in plan.queue_nums.items():
            self._topics.check(TopicConfig(topic, nums, nums))
        return plan

    def run(self, plan: ImportPlan, advance: Advance = lambda _count: None) -> None:
        """Stores the messages. Raises StoreError, ConfigFileError, OSError."""
        config = StoreConfig(
            self._folder,
            self._sizes.segment_bytes,
            self._sizes.queue_file_bytes,
            FlushDiskType.ASYNC_FLUSH,
        )
        store = MessageStore(config, self._clock, STORE_HOST)
        store.open()
        stored = 0
        try:
            self._topics.load()
            asyncio.run(self._make_topics(plan))
            for file in self._files:
                for one in self._blocks(file):
                    store.append(one.queue, one.block)
                    stored += len(one.block)
                    advance(len(one.block))
                    if store.unflushed_bytes >= FLUSH_BYTES:
                        _flush(store)
            _flush(store)
        except (StoreClosedError, OSError) as error:
            total = plan.message_count
            raise StoreClosedError(f"{error}; {stored} of {total} messages were stored") from error
        finally:
            store.close()

    async def _make_topics(self, plan: ImportPlan) -> None:
        """Creates topics and adds queues, so that every message's queue exists."""
        changes = []
        for topic, nums in plan.queue_nums.items():
            try:
                old = self._topics.get(topic)
            except TopicNotExistError:
                config = TopicConfig(topic, nums, nums)
            else:
                read, write = max(old.read_queue_nums, nums), max(old.write_queue_nums, nums)
                config = replace(old, read_queue_nums=read, write_queue_nums=write)
                if config == old:
                    continue
            changes.append(self._topics.update(config, create_only=False))
        await asyncio.gather(*changes)

    def _blocks(self, file: MessageFile) -> Iterator[_Block]:
        row = 0
        for batch in file.batches():
            try:
                for rows in by_queue(batch, self._topic, self._clock.now_ms()):
                    for block in rows.blocks(self._sizes.segment_bytes):
                        yield _Block(rows.queue, block)
            except UnencodableRecordError as error:
                place = None if error.index is None else row + error.index
                told = UnencodableRecordError(error.field, error.value, error.reason, place)
                raise MessageFileError(file.path, str(told)) from error
            row += len(batch)


def _flush(store: MessageStore) -> None:
    try:
        flush_now(store)
    except OSError as error:
        store.flush_failed(error)
        raise
    store.flush_derived()
