"""Worker programs over a store with a full or failing disk, see `zygote`."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketpy_broker.errors import BrokerError, StoreClosedError
from rocketpy_broker.runtime.process_tuning import raise_descriptor_limit
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import ResponseCode
from tests.faults.histories.history import FINAL
from tests.faults.workers.store_use import (
    DELETED_TOPIC,
    QUEUES,
    SMALL_SIZES,
    SavedOffset,
    Sender,
    new_store,
    read_queue,
    tell_all,
)
from tests.faults.workers.zygote import Link
from tests.support.blocks import wire_block
from tests.support.store.messages import delete_topic

SCRIPT_STEPS = 120
BALLAST_WRITE_BYTES = 1 << 20
# Limits of one round with a full disk: all sends, and refused ones.
FULL_SENDS_MAX = 60
FULL_REFUSALS_MAX = 5


def fill_and_free(link: Link, folder: str, ballast: str, seed: int, rounds: int) -> None:
    """Uses a store on a disk that is filled and freed repeatedly; reports how each send ends."""
    raise_descriptor_limit()
    plan = random.Random(seed)
    store = new_store(folder, sizes=SMALL_SIZES)
    store.open()
    sender, saved = Sender(store, link, "s", plan), SavedOffset(store, link)
    for number in range(rounds):
        # A queue that is created while the disk is full.
        sender.queues = [*QUEUES, QueueKey(f"Topic{number}", 0)]
        fill(Path(ballast), plan.choice([0, plan.randrange(64 << 10)]))
        use_while_full(store, sender, saved, plan)
        Path(ballast).unlink()
        sender.send()
        sender.flush()
        saved.save(saved.number + 1)
        link.emit("round")
    tell_all(store, link, FINAL)
    store.close()
    link.emit("closed")


def fill(ballast: Path, left_bytes: int) -> None:
    """Fills the disk with ballast, but for `left_bytes`."""
    with ballast.open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while file.write(bytes(BALLAST_WRITE_BYTES)):
                pass
        file.truncate(max(file.tell() - left_bytes, 0))


def use_while_full(
    store: MessageStore, sender: Sender, saved: SavedOffset, plan: random.Random
) -> None:
    """Sends, flushes, saves and reads until enough is refused; reads and flushes go on."""
    refused = 0
    for _ in range(FULL_SENDS_MAX):
        refused += is_refused(sender.send)
        sender.flush()
        # If the queues cannot grow, their messages wait in the log.
        with no_space_allowed():
            store.flush_derived()
        with no_space_allowed():
            saved.save(saved.number + 1)
        queue = plan.choice(QUEUES)
        if store.range_of(queue).max_offset:
            assert any(read_queue(store, queue, store.range_of(queue).max_offset - 1))
        if refused == FULL_REFUSALS_MAX:
            return


def is_refused(send: Callable[[], None]) -> bool:
    """True if a send is refused by the only declared error for a full disk."""
    try:
        send()
    except StoreClosedError as error:
        if error.code is not ResponseCode.SERVICE_NOT_AVAILABLE:
            raise
        return True
    return False


@contextlib.contextmanager
def no_space_allowed() -> Iterator[None]:
    """Ignores errors for want of space, and no other error."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def script(link: Link, folder: str, seed: int) -> None:
    """Runs about 200 operations, the same at each run, while one of its system calls fails.

    Reports each failure; an undeclared error ends the worker.
    """
    plan = random.Random(seed)
    link.wait_for_go()
    store = new_store(folder, sizes=SMALL_SIZES)
    try:
        store.open()
        saved = SavedOffset(store, link)
    except (OSError, BrokerError) as error:
        link.emit("failed", "open", str(error))
        return
    sender = Sender(store, link, "s", plan)
    for step in range(SCRIPT_STEPS):
        script_step(store, sender, saved, step)
    tell_all(store, link, "script")
    try:
        store.close()
    except OSError as error:
        link.emit("failed", "close", str(error))
    link.emit("closed", store.refusal)


def script_step(store: MessageStore, sender: Sender, saved: SavedOffset, step: int) -> None:
    """Sends once; sometimes flushes the log or queues, saves a file, or deletes a topic."""
    link = sender.link
    try:
        sender.send()
    except StoreClosedError:
        link.emit("failed", "send", store.refusal)
    if step % 2 and store.refusal is None:
        with contextlib.suppress(OSError):
            sender.flush()
    work: dict[int, Callable[[], None]] = {
        5: store.flush_derived,
        10: lambda: saved.save(step),
        15: lambda: delete_a_topic(store),
    }
    if step % 20 in work:
        try:
            work[step % 20]()
        except OSError as error:
            link.emit("failed", work[step % 20].__name__, str(error))


def delete_a_topic(store: MessageStore) -> None:
    """Creates a topic, and deletes it again. Raises OSError."""
    with contextlib.suppress(StoreClosedError):
        block = wire_block(DELETED_TOPIC, [b"short-lived"]).parsed()
        store.append(QueueKey(DELETED_TOPIC, 0), block)
    delete_topic(store, DELETED_TOPIC)
