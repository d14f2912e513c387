"""Directories that our store wrote: RocketMQ opens, reads and extends them."""

from __future__ import annotations

import pytest

from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.interop.stores import MakeStores, Stores, messages
from tests.support.store.stores import crash

A0 = QueueKey("TopicA", 0)
A3 = QueueKey("TopicA", 3)
B0 = QueueKey("TopicB", 0)


def fill(stores: Stores, store: MessageStore, rounds: int = 12) -> None:
    """Appends blocks to three queues, across several segments and queue files."""
    for number in range(rounds):
        stores.append_ours(store, A0, messages(7, f"a{number}"))
        stores.append_ours(store, A3, messages(1, f"b{number}"))
        stores.append_ours(store, B0, messages(3, f"c{number}"))


def go_on(stores: Stores) -> None:
    """Reads and appends with RocketMQ, then with ours; both agree at the end."""
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        stores.put_rocketmq(theirs, A0, messages(25, "theirs"))
        stores.put_batch_rocketmq(theirs, B0, messages(5, "batch"))
        stores.put_rocketmq(theirs, QueueKey("TopicC", 1), messages(3, "new"))
        stores.check_rocketmq(theirs)
        theirs.stop()
    ours = stores.ours()
    assert not ours.open().abnormal
    stores.check_ours(ours)
    fill(stores, ours, 2)
    ours.close()
    stores.check_both_read_the_same()


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f14_a_store_that_we_closed_goes_on_in_rocketmq(
    new_stores: MakeStores, flush: FlushDiskType
) -> None:
    stores = new_stores(flush)
    store = stores.open_ours()
    fill(stores, store)
    store.close()
    go_on(stores)


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f14_a_store_that_we_left_crashed_is_recovered_by_rocketmq(
    new_stores: MakeStores, flush: FlushDiskType
) -> None:
    stores = new_stores(flush)
    store = stores.open_ours()
    fill(stores, store)
    crash(store)
    go_on(stores)


@pytest.mark.parametrize("crashed", [False, True])
def test_f14_a_store_of_default_sizes_goes_on_in_rocketmq(
    new_stores: MakeStores, crashed: bool
) -> None:
    stores = new_stores(segment_bytes=1 << 30, queue_file_bytes=6_000_000)
    store = stores.open_ours()
    fill(stores, store)
    (crash if crashed else MessageStore.close)(store)
    go_on(stores)
