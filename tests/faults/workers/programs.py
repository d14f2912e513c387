"""Worker programs over a store; each function runs in a process of its own, see `zygote`."""

from __future__ import annotations

import random
from concurrent.futures import Future, ThreadPoolExecutor

from rocketpy_broker.errors import BrokerError, StoreLockedError
from rocketpy_broker.runtime.process_tuning import raise_descriptor_limit
from rocketpy_broker.store.log.flush import FlushPlan
from rocketpy_broker.store.message_store import MessageStore
from tests.faults.histories.history import FINAL
from tests.faults.workers.store_use import (
    PENDING_MAX,
    QUEUES,
    SavedOffset,
    Sender,
    Sizes,
    new_store,
    notify_queue,
    tell_all,
)
from tests.faults.workers.zygote import Link


class Loader:
    """A user of a store: calls as a broker makes them, in random order."""

    def __init__(
        self, store: MessageStore, sender: Sender, plan: random.Random, saved: SavedOffset
    ) -> None:
        self._store = store
        self._sender = sender
        self._plan = plan
        self._saved = saved
        self._threads = ThreadPoolExecutor(1)
        self._flushing: tuple[FlushPlan, Future[None]] | None = None

    def step(self) -> None:
        """Appends once, and sometimes does more. Raises OSError, StoreClosedError."""
        chance = self._plan.random
        self._sender.send()
        is_done = self._flushing is not None and self._flushing[1].done()
        if is_done or chance() < 0.1 or self._sender.pending > PENDING_MAX:
            self.end_flush()
        if self._flushing is None and chance() < 0.6:
            flush_plan = self._store.plan_flush()
            self._flushing = flush_plan, self._threads.submit(flush_plan.run)
        if chance() < 0.03:
            self._threads.submit(self._store.flush_derived).result()
        if chance() < 0.03:
            self._read_end()
        if chance() < 0.03:
            self._saved.save(self._saved.number + 1)

    def end_flush(self) -> None:
        """Waits for the running flush. Raises OSError."""
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
        notify_queue(self._store, self._sender.link, queue, f"reader-{self._plan.random()}", begin)


def load(
    link: Link,
    folder: str,
    flush: str,
    name: str,
    seed: int,
    steps_max: int = 400,
) -> None:
    """Opens the store and uses it until killed or until the disk fails; sometimes closes it."""
    raise_descriptor_limit()
    plan = random.Random(seed)
    store = new_store(folder, flush)
    try:
        store.open()
        link.emit("open")
        saved = SavedOffset(store, link)
        loader = Loader(store, Sender(store, link, name, plan), plan, saved)
        for _step in range(steps_max):
            loader.step()
        if plan.random() < 0.5:
            loader.end_flush()
            store.close()
            link.emit("closed")
    except (OSError, BrokerError) as error:
        link.emit("failed", type(error).__name__, str(error))
    link.wait_for_go()


def read(link: Link, folder: str, sizes: Sizes) -> None:
    """Opens the store in any state, reports all its messages, and stops cleanly."""
    raise_descriptor_limit()
    store = new_store(folder, sizes=sizes)
    store.open()
    link.emit("open")
    tell_all(store, link, FINAL)
    link.emit("config", SavedOffset(store, link).number)
    store.close()
    link.emit("closed")


def stages(link: Link, folder: str, seed: int, sizes: Sizes, sends_max: int = 25) -> None:
    """Sends, flushes the queues, sends, flushes the log, sends; waits for the test in between."""
    plan = random.Random(seed)
    store = new_store(folder, sizes=sizes)
    store.open()
    sender = Sender(store, link, "s", plan)

    def send_some() -> None:
        for _ in range(plan.randint(0, sends_max)):
            sender.send(size_bytes_max=2000)

    send_some()
    sender.flush()
    store.flush_derived()
    link.emit("derived files flushed")
    link.wait_for_go()
    send_some()
    sender.flush()
    link.emit("log flushed")
    link.wait_for_go()
    send_some()
    link.emit("crash")
    link.wait_for_go()


def go_on(link: Link, folders: list[str], seed: int, sizes: Sizes) -> None:
    """Opens stores after a crash; sends a little more, reports all messages, stops cleanly."""
    for folder in folders:
        store = new_store(folder, sizes=sizes)
        store.open()
        sender = Sender(store, link, "again", random.Random(seed))
        for _ in range(3):
            sender.send()
        sender.flush()
        tell_all(store, link, FINAL)
        store.close()
        link.emit("closed")


def race(link: Link, folder: str) -> None:
    """Opens the store at the test's signal; reports the result, and holds it until stopped."""
    store = new_store(folder)
    link.emit("ready")
    link.wait_for_go()
    try:
        store.open()
    except StoreLockedError as error:
        link.emit("locked", str(error))
        return
    link.emit("open")
    link.wait_for_go()
    store.close()
    link.emit("closed")
