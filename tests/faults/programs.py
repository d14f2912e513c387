"""What workers do to a store: each function is run in a process of its own, see `zygote`.

Events, which `recording` turns into a history: `begin`, `ack`, `refused`, `durable`, `read`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocketpy_broker.clock import SystemClock
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.process import raise_descriptor_limit
from rocketpy_broker.services.config_file import ConfigFile
from rocketpy_broker.store.flush import FlushDiskType, FlushPlan
from rocketpy_broker.store.message_store import MessageStore, StoreConfig
from rocketpy_broker.store.values import GetMessageStatus, QueueKey
from rocketpy_proto.record import Host
from tests.blocks import bodies_of, wire_block
from tests.faults.history import FINAL, body_of, hash_of, id_of
from tests.faults.zygote import Link

SEGMENT_BYTES = 256 << 10
QUEUE_FILE_BYTES = 4000
STORE_HOST = Host.parse("127.0.0.1:10911")
QUEUES = [QueueKey(topic, queue_id) for topic in ("TopicA", "TopicB") for queue_id in range(2)]
READ_BYTES_MAX = 64 << 10
NO_END = 1 << 60
# So many appends may wait for a flush before the worker waits, too.
PENDING_MAX = 24


@dataclass(frozen=True)
class Sizes:
    """Sizes of a store's files in bytes; fixed for its life."""

    segment: int = SEGMENT_BYTES
    queue_file: int = QUEUE_FILE_BYTES


def new_store(
    folder: str | Path, flush: FlushDiskType | str = FlushDiskType.SYNC_FLUSH, sizes: Sizes = Sizes()
) -> MessageStore:
    """A store that is not open yet."""
    config = StoreConfig(Path(folder), sizes.segment, sizes.queue_file, FlushDiskType(flush))
    return MessageStore(config, SystemClock(), STORE_HOST)


@dataclass(frozen=True, slots=True)
class Sent:
    """An append that has not been acknowledged yet."""

    end: int
    queue: QueueKey
    queue_offset: int
    message_ids: list[str]


class Sender:
    """Sends messages with ids of its own to a store, flushes and acknowledges as a broker does."""

    def __init__(self, store: MessageStore, link: Link, name: str, plan: random.Random) -> None:
        self.store = store
        self.link = link
        self._name = name
        self._plan = plan
        self._count = 0
        self._pending: deque[Sent] = deque()
        self._sync = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def send(self, count: int | None = None, size_bytes_max: int = 600) -> None:
        """Append one message or a block. Raises what the store raises, and has told of it."""
        plan = self._plan
        count = count or plan.choice([1, 1, plan.randint(2, 9)])
        queue = plan.choice(QUEUES)
        sizes = [plan.randint(40, size_bytes_max) for _ in range(count)]
        message_ids = [f"{self._name}-{self._count + number}" for number in range(count)]
        self._count += count
        bodies = [body_of(name, size) for name, size in zip(message_ids, sizes, strict=True)]
        block = wire_block(queue.topic, bodies).parsed()
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
        """How many appends wait for a flush."""
        return len(self._pending)

    def flushed(self, plan: FlushPlan) -> None:
        """A flush has been run: tell the store, and acknowledge what it covers."""
        self.store.flushed(plan)
        self.link.emit("durable", plan.end)
        while self._pending and self._pending[0].end <= plan.end:
            self._acknowledge(self._pending.popleft())

    def flush(self) -> None:
        """Flush on this thread. Raises OSError, after which the store is read-only."""
        plan = self.store.plan_flush()
        try:
            plan.run()
        except OSError as error:
            self.store.flush_failed(error)
            self.link.emit("flush failed", str(error))
            raise
        self.flushed(plan)


def read_queue(store: MessageStore, queue: QueueKey, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Offset and body of every message from `offset` on."""
    while True:
        result = store.get_message(queue, offset, NO_END, READ_BYTES_MAX)
        if result.status is not GetMessageStatus.FOUND:
            return
        data = b"".join(bytes(part) for part in result.parts)
        yield from enumerate(bodies_of(data, result.sizes), offset)
        offset = result.next_offset


def tell_queue(
    store: MessageStore, link: Link, queue: QueueKey, reader: str, offset: int = 0
) -> None:
    """Read a queue and say what is in it."""
    found = [
        (number, id_of(body), hash_of(body)) for number, body in read_queue(store, queue, offset)
    ]
    for start in range(0, len(found), 200):
        link.emit("read", reader, queue, found[start : start + 200])


class Loader:
    """Uses a store as a broker does, in an order that chance decides."""

    def __init__(self, store: MessageStore, sender: Sender, plan: random.Random, config: int) -> None:
        self._store = store
        self._sender = sender
        self._plan = plan
        self._config = config
        self._threads = ThreadPoolExecutor(1)
        self._flushing: tuple[FlushPlan, Future[None]] | None = None

    def step(self) -> None:
        """One append, and perhaps something else. Raises OSError, StoreClosedError."""
        chance = self._plan.random
        self._sender.send()
        if chance() < 0.1 or self._sender.pending > PENDING_MAX:
            self.end_flush()
        elif self._flushing is not None and self._flushing[1].done():
            self.end_flush()
        if self._flushing is None and chance() < 0.6:
            flush_plan = self._store.plan_flush()
            self._flushing = flush_plan, self._threads.submit(flush_plan.run)
        if chance() < 0.03:
            self._threads.submit(self._store.flush_queues).result()
        if chance() < 0.03:
            self._read_end()
        if chance() < 0.03:
            self._save_config()

    def end_flush(self) -> None:
        """Wait for the flush that runs. Raises OSError."""
        if self._flushing is not None:
            flush_plan, future = self._flushing
            self._flushing = None
            try:
                future.result()
            except OSError as error:
                self._store.flush_failed(error)
                raise
            self._sender.flushed(flush_plan)

    def _read_end(self) -> None:
        queue = self._plan.choice(QUEUES)
        begin = max(self._store.range_of(queue).max_offset - 20, 0)
        tell_queue(self._store, self._sender.link, queue, f"reader-{self._plan.random()}", begin)

    def _save_config(self) -> None:
        self._config += 1
        link = self._sender.link
        link.emit("saving", self._config)
        config_file(self._store.config.folder).save({"number": self._config})
        link.emit("saved", self._config)


def config_file(folder: Path) -> ConfigFile:
    """A configuration file of ours, beside those of the broker."""
    return ConfigFile(folder / "config" / "faults.json")


def load(
    link: Link,
    folder: str,
    flush: str,
    name: str,
    seed: int,
    steps_max: int = 400,
    config_begin: int = 0,
) -> None:
    """Open the store and use it until killed or until the disk fails; perhaps close it."""
    raise_descriptor_limit()
    plan = random.Random(seed)
    store = new_store(folder, flush)
    try:
        store.open()
        link.emit("open")
        loader = Loader(store, Sender(store, link, name, plan), plan, config_begin)
        for _step in range(steps_max):
            loader.step()
        if plan.random() < 0.5:
            loader.end_flush()
            store.close()
            link.emit("closed")
    except (OSError, BrokerError) as error:
        link.emit("failed", type(error).__name__, str(error))
    link.wait_for_go()


def read(link: Link, folder: str) -> None:
    """Open the store after whatever happened, say all that is in it, and stop cleanly."""
    raise_descriptor_limit()
    store = new_store(folder)
    store.open()
    link.emit("open")
    for queue in QUEUES:
        tell_queue(store, link, queue, FINAL)
    config = config_file(Path(folder)).load()
    link.emit("config", 0 if config is None else config["number"])
    store.close()
    link.emit("closed")
