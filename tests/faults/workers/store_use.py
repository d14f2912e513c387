"""A store's use by workers and tests: open, send with ids, flush, read everything.

Events, which `recorder` turns into a history: `begin`, `ack`, `refused`, `durable`, `read`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.runtime.clock import SystemClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.log.flush import FlushPlan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from rocketpy_proto.record import decode_record
from tests.faults.histories.history import body_of, hash_of, id_of
from tests.faults.workers.zygote import Link
from tests.support.blocks import BORN_HOST, BORN_MS, wire_block
from tests.support.store.stores import STORE_HOST, store_in

INDEX = {"index_slot_count": 50, "index_entry_count_max": 400}
# The sizes of a store's files, fixed for its life.
Sizes = dict[str, int]
SIZES: Sizes = {"segment_bytes": 256 << 10, "queue_file_bytes": 4000}
SMALL_SIZES: Sizes = {"segment_bytes": 32 << 10, "queue_file_bytes": 1000}
GROUP = "faults"
# A topic that is deleted now and then; its messages are not read.
DELETED_TOPIC = "Short"
QUEUES = [QueueKey(topic, queue_id) for topic in ("TopicA", "TopicB") for queue_id in range(2)]
# Long enough to cross a page boundary, so that half of it can be missing.
TAGS = "tags-" * 50
READ_BYTES_MAX = 64 << 10
NO_END = 1 << 60
# The number of appends that may wait for a flush before the worker waits, too.
PENDING_MAX = 24


def new_store(
    folder: str | Path,
    flush: FlushDiskType | str = FlushDiskType.SYNC_FLUSH,
    sizes: Sizes = SIZES,
) -> MessageStore:
    """Returns a store that is not open yet."""
    return store_in(folder, SystemClock(), flush, **sizes, **INDEX)


@dataclass(frozen=True, slots=True)
class Sent:
    """An append that has not been acknowledged yet."""

    end: int
    queue: QueueKey
    queue_offset: int
    message_ids: list[str]


class Sender:
    """A sender of messages with ids of its own; it flushes and acknowledges as a broker does."""

    def __init__(self, store: MessageStore, link: Link, name: str, plan: random.Random) -> None:
        self.store = store
        self.link = link
        self.queues = list(QUEUES)
        self._name = name
        self._plan = plan
        self._count = 0
        self._pending: deque[Sent] = deque()
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def send(self, count: int | None = None, size_bytes_max: int = 600) -> None:
        """Appends one message or a block. Reports and raises the store's errors."""
        plan = self._plan
        count = count or plan.choice([1, 1, plan.randint(2, 9)])
        queue = plan.choice(self.queues)
        sizes = [plan.randint(40, size_bytes_max) for _ in range(count)]
        message_ids = [f"{self._name}-{self._count + number}" for number in range(count)]
        self._count += count
        bodies = [body_of(name, size) for name, size in zip(message_ids, sizes, strict=True)]
        block = wire_block(queue.topic, bodies, tags=TAGS).parsed()
        self.link.emit("begin", self._name, queue, message_ids, sizes)
        try:
            result = self.store.append(queue, block)
        except BaseException as error:
            self.link.emit("refused", message_ids, type(error).__name__, str(error))
            raise
        sent = Sent(result.end_offset, queue, result.queue_offset, message_ids)
        if self._sync:
            self._pending.append(sent)
        else:
            self._acknowledge(sent)

    def _acknowledge(self, sent: Sent) -> None:
        self.link.emit("ack", sent.queue, sent.queue_offset, sent.message_ids, sent.end)

    @property
    def pending(self) -> int:
        """The number of appends that wait for a flush."""
        return len(self._pending)

    def flushed(self, plan: FlushPlan) -> None:
        """Reports a completed flush to the store, and acknowledges the messages before its end."""
        self.store.flushed(plan)
        self.link.emit("durable", plan.end)
        while self._pending and self._pending[0].end <= plan.end:
            self._acknowledge(self._pending.popleft())

    def flush(self) -> None:
        """Flushes on this thread. Raises OSError, after which the store is read-only."""
        plan = self.store.plan_flush()
        try:
            plan.run()
        except OSError as error:
            self.store.flush_failed(error)
            self.link.emit("flush failed", str(error))
            raise
        self.flushed(plan)


@dataclass(frozen=True, slots=True)
class Found:
    """A message in a queue. `problem` names the first field that is not as sent, or ""."""

    queue_offset: int
    body: bytes
    problem: str


def read_queue(store: MessageStore, queue: QueueKey, offset: int = 0) -> Iterator[Found]:
    """Yields every message from `offset` on."""
    while True:
        result = store.get_message(queue, offset, NO_END, ReadLimits.of_bytes(READ_BYTES_MAX))
        if result.status is GetMessageStatus.MESSAGE_WAS_REMOVING:
            # A hole in the queue: the messages after it are delivered all the same.
            assert result.next_offset > offset
            offset = result.next_offset
            continue
        if result.status is not GetMessageStatus.FOUND:
            return
        data = b"".join(bytes(part) for part in result.parts)
        position = 0
        for number, size in enumerate(result.sizes.tolist(), offset):
            yield _found(data[position : position + size], queue, number)
            position += size
        offset = result.next_offset


def _found(data: bytes, queue: QueueKey, queue_offset: int) -> Found:
    record = decode_record(data).record
    fields = {
        "topic": (record.topic, queue.topic),
        "queue id": (record.queue_id, queue.queue_id),
        "queue offset": (record.queue_offset, queue_offset),
        "tags": (record.properties.get("TAGS"), TAGS),
        "flag": (record.flag, 0),
        "born time": (record.born_timestamp_ms, BORN_MS),
        "born host": (record.born_host, BORN_HOST),
        "store host": (record.store_host, STORE_HOST),
        "reconsume times": (record.reconsume_times, 0),
    }
    wrong = [f"{name} {got!r:.400}" for name, (got, expected) in fields.items() if got != expected]
    return Found(queue_offset, record.body, wrong[0] if wrong else "")


def tell_all(store: MessageStore, link: Link, reader: str) -> None:
    """Reports all messages, without the topic that may be deleted."""
    for queue in store.queues():
        if queue.topic != DELETED_TOPIC:
            notify_queue(store, link, queue, reader)


def notify_queue(
    store: MessageStore, link: Link, queue: QueueKey, reader: str, offset: int = 0
) -> None:
    """Reports all messages of a queue."""
    found = [
        (message.queue_offset, id_of(message.body), message.problem or hash_of(message.body))
        for message in read_queue(store, queue, offset)
    ]
    for start in range(0, len(found), 200):
        link.emit("read", reader, queue, found[start : start + 200])


class SavedOffset:
    """The offset of a consumer group in the broker's configuration: a number to save and load."""

    def __init__(self, store: MessageStore, link: Link) -> None:
        self._link = link
        self._offsets = ConsumerOffsetManager(store.config.folder / "config", SystemClock())
        self._offsets.load()

    @property
    def number(self) -> int:
        """The number that was loaded or saved last; 0 before."""
        return max(self._offsets.query(GROUP, *QUEUES[0]), 0)

    def save(self, number: int) -> None:
        """Saves a number. Raises OSError; the file then holds the old one or this one."""
        self._offsets.commit(GROUP, *QUEUES[0], number)
        self._link.emit("saving", number)
        save_now(self._offsets)
        self._link.emit("saved", number)
