"""Directories that RocketMQ wrote: we open, read and extend them, then RocketMQ does again."""

from __future__ import annotations

import threading

import pytest

from rocketpy_broker.errors import StoreLockedError
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.interop.drivers import ProcessEndedError, RocketMQError
from tests.interop.rocketmq import Message, RocketMQStore
from tests.interop.stores import MakeStores, Stores, messages, queue_files, read, rebuilt_queues
from tests.support.store.stores import crash

A0 = QueueKey("TopicA", 0)
A3 = QueueKey("TopicA", 3)
B0 = QueueKey("TopicB", 0)


def fill(stores: Stores, theirs: RocketMQStore, rounds: int = 6) -> None:
    """Puts single messages and batches to three queues, across segments and queue files."""
    for number in range(rounds):
        stores.put_rocketmq(theirs, A0, messages(7, f"a{number}"))
        stores.put_rocketmq(theirs, A3, [Message(b""), *messages(1, f"b{number}")])
        stores.put_batch_rocketmq(theirs, B0, messages(5, f"c{number}"))


def go_on(stores: Stores, *, crashed: bool) -> None:
    """Reads and appends with our store, then reads all with both."""
    ours = stores.ours()
    assert ours.open().abnormal == crashed
    stores.check_ours(ours)
    stores.append_ours(ours, A0, messages(25, "ours"))
    stores.append_ours(ours, QueueKey("TopicC", 1), messages(3, "new"))
    stores.check_ours(ours)
    ours.close()
    assert not stores.check_both_read_the_same().abnormal


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f14_a_store_of_rocketmqs_goes_on_here(
    new_stores: MakeStores, flush: FlushDiskType, killed: bool
) -> None:
    stores = new_stores(flush)
    with stores.rocketmq() as theirs:
        fill(stores, theirs)
        stores.check_rocketmq(theirs)
        (theirs.kill if killed else theirs.stop)()
    go_on(stores, crashed=killed)


@pytest.mark.parametrize("killed", [False, True])
def test_f14_a_store_of_rocketmqs_default_sizes_goes_on_here(
    new_stores: MakeStores, killed: bool
) -> None:
    stores = new_stores(segment_bytes=1 << 30, queue_file_bytes=6_000_000)
    with stores.rocketmq() as theirs:
        fill(stores, theirs)
        stores.check_rocketmq(theirs)
        (theirs.kill if killed else theirs.stop)()
    go_on(stores, crashed=killed)


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f14_rocketmq_killed_while_it_writes_loses_nothing_here(
    new_stores: MakeStores, flush: FlushDiskType, seconds: float
) -> None:
    stores = new_stores(flush, segment_bytes=65_536, queue_file_bytes=2_000)
    unanswered: list[Message] = []
    with stores.rocketmq() as theirs:
        stores.put_rocketmq(theirs, A0, messages(1))
        killer = threading.Timer(seconds, theirs.kill_process)
        killer.start()
        try:
            for number in range(1_000_000):
                unanswered = messages(3, f"a{number}")
                stores.put_rocketmq(theirs, A0, unanswered)
        except ProcessEndedError:
            killer.join()
    ours = stores.ours()
    assert ours.open().abnormal
    found = [record.body for record in read(ours, A0)]
    answered = [message.body for message in stores.written[A0]]
    assert found[: len(answered)] == answered
    extra = len(found) - len(answered)
    assert found[len(answered) :] == [message.body for message in unanswered[:extra]]
    stores.written[A0] += unanswered[:extra]
    stores.append_ours(ours, A0, messages(9, "ours"))
    ours.close()
    assert not stores.check_both_read_the_same().abnormal


def test_s06_the_queues_that_we_rebuild_are_rocketmqs_byte_for_byte(stores: Stores) -> None:
    with stores.rocketmq() as theirs:
        fill(stores, theirs)
        stores.check_rocketmq(theirs)
        theirs.stop()
    theirs_files = queue_files(stores)
    assert rebuilt_queues(stores) == theirs_files


def test_s09_a_directory_that_rocketmq_has_open_is_refused(stores: Stores) -> None:
    with stores.rocketmq() as theirs:
        stores.put_rocketmq(theirs, A0, messages(5))
        with pytest.raises(StoreLockedError):
            stores.ours().open()
        stores.put_rocketmq(theirs, A0, messages(5))
        stores.check_rocketmq(theirs)


def test_s09_rocketmq_refuses_a_directory_that_we_have_open(stores: Stores) -> None:
    ours = stores.open_ours()
    stores.append_ours(ours, A0, messages(5))
    with pytest.raises(RocketMQError, match="Lock failed"), stores.rocketmq():
        pass
    stores.append_ours(ours, A0, messages(5))
    stores.check_ours(ours)
    ours.close()


def test_s09_a_store_that_both_left_crashed_in_turn_is_whole(stores: Stores) -> None:
    with stores.rocketmq() as theirs:
        fill(stores, theirs)
        theirs.kill()
    ours = stores.open_ours()
    stores.append_ours(ours, A0, messages(25, "ours"))
    crash(ours)
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        fill(stores, theirs)
        theirs.kill()
    stores.check_both_read_the_same()
