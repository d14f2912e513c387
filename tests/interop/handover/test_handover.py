"""F16: a directory that changes hands, with a damaged record, stale bytes, and kills."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import GetMessageStatus, QueueKey, ReadLimits
from tests.interop.rocketmq import V4, V5, VERSIONS, Message, RocketMQStore
from tests.interop.stores import MakeStores, Stores, as_rocketmq_sees, messages, read
from tests.support.store.planted_faults import FIRST, flip
from tests.support.store.stores import crash

A0, A1 = QueueKey("TopicA", 0), QueueKey("TopicA", 1)
QUEUES = (A0, A1)
COUNT, DAMAGED = 200, 50
ENDS = ["stopped", "killed"]
each_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def stores(new_stores: MakeStores) -> Stores:
    """Returns a directory with one segment and one file for each queue."""
    return new_stores(segment_bytes=1 << 20, queue_file_bytes=200_000)


def alike(count: int, word: str) -> list[Message]:
    """Returns messages of one size, so that replacements end where a stale one begins."""
    return [Message(f"{word} {number:06d}".encode()) for number in range(count)]


def end_ours(store: MessageStore, how: str) -> None:
    (MessageStore.close if how == "stopped" else crash)(store)


def end_theirs(store: RocketMQStore, how: str) -> None:
    (RocketMQStore.stop if how == "stopped" else RocketMQStore.kill)(store)


def place_of(stores: Stores, queue: QueueKey, number: int) -> int:
    """Returns the log position that a queue's unit points to."""
    path = stores.folder / "consumequeue" / queue.topic / str(queue.queue_id) / FIRST
    return int.from_bytes(path.read_bytes()[number * 20 :][:8], "big")


def damage(stores: Stores) -> None:
    """Flips a bit in the body of record 50."""
    flip(stores.folder / "commitlog" / FIRST, place_of(stores, A0, DAMAGED // 2) + 90)


def cut(stores: Stores) -> None:
    """Removes the expected messages from record 50 on, where the log then ends."""
    for queue in QUEUES:
        del stores.written[queue][DAMAGED // 2 :]


# The start of a stale record concerns our recovery alone, and is the same after any version.
@pytest.mark.parametrize(
    ("version", "word"),
    [(V5, "new"), (V5, "newer than before"), (V4, "new")],
    ids=[f"{V5}-aligned", f"{V5}-unaligned", f"{V4}-aligned"],
)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("first", ["RocketMQ", "we"])
def test_f16_what_rocketmq_has_cut_never_comes_back(
    stores: Stores, first: str, how: str, word: str
) -> None:
    if first == "we":
        store = stores.open_ours()
        for one in alike(COUNT // 2, "old"):
            for queue in QUEUES:
                stores.append_ours(store, queue, [one])
        store.close()
    else:
        with stores.rocketmq() as theirs:
            for one in alike(COUNT // 2, "old"):
                for queue in QUEUES:
                    stores.put_rocketmq(theirs, queue, [one])
            theirs.stop()
    damage(stores)
    (stores.folder / "abort").touch()
    cut(stores)
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        stores.put_rocketmq(theirs, A0, alike(13, word))
        stores.check_rocketmq(theirs)
        dumps = {queue: theirs.dump(queue) for queue in QUEUES}
        end_theirs(theirs, how)
    again = stores.open_ours()
    stores.check_ours(again)
    for queue in QUEUES:
        assert [as_rocketmq_sees(record) for record in read(again, queue)] == dumps[queue]
    stores.append_ours(again, A1, messages(7, "ours"))
    again.close()
    assert not stores.check_both_read_the_same().abnormal


@each_version
def test_f16_both_killed_one_after_the_other_lose_nothing(stores: Stores) -> None:
    for turn in range(3):
        store = stores.open_ours()
        stores.check_ours(store) if turn else None
        stores.append_ours(store, A0, messages(10, f"ours {turn}"))
        crash(store)
        text = (stores.folder / "abort").read_bytes()
        with stores.rocketmq() as theirs:
            stores.check_rocketmq(theirs)
            stores.put_rocketmq(theirs, A0, messages(10, f"theirs {turn}"))
            stores.put_rocketmq(theirs, A1, messages(3, f"theirs {turn}"))
            theirs.kill()
        # RocketMQ 4.9 only creates the file if there is none.
        kept = (stores.folder / "abort").read_bytes() == text
        assert kept == (stores.version == V4)
    stores.check_both_read_the_same()


@each_version
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("lost", [False, True], ids=["queues there", "queues gone"])
def test_f16_rocketmq_reads_on_behind_a_record_of_ours_that_was_damaged(
    stores: Stores, how: str, lost: bool
) -> None:
    store = stores.open_ours()
    for one in alike(COUNT // 2, "old"):
        for queue in QUEUES:
            stores.append_ours(store, queue, [one])
    store.flush_derived()
    plan = store.plan_flush()
    plan.run()
    store.flushed(plan)
    crash(store)
    damage(stores)
    again = stores.ours()
    assert len(again.open().damages) == 1
    end_ours(again, how)
    (stores.folder / "abort").touch()
    if lost:
        shutil.rmtree(stores.folder / "consumequeue")
    bodies = {queue: [one.body for one in stores.written[queue]] for queue in QUEUES}
    del bodies[A0][DAMAGED // 2]
    new = alike(5, "new")
    with stores.rocketmq() as theirs:
        for queue in QUEUES:
            found = [one for one in theirs.dump(queue) if one["body"].strip(b"\0")]
            assert [one["body"] for one in found] == bodies[queue]
        assert all(one["status"] == "PUT_OK" for one in theirs.put(A1, new))
        end_theirs(theirs, how)
    bodies[A1] += [one.body for one in new]
    back = stores.ours()
    assert back.open().damages == []
    for queue in QUEUES:
        assert shown(back, queue) == bodies[queue]
    back.close()


def shown(store: MessageStore, queue: QueueKey) -> list[bytes]:
    """Returns every readable body, past any holes."""
    bounds = store.range_of(queue)
    found: list[bytes] = []
    for offset in range(bounds.min_offset, bounds.max_offset):
        result = store.get_message(queue, offset, offset + 1, ReadLimits())
        if result.status is GetMessageStatus.FOUND:
            found.append(read_body(result.data))
    return found


def read_body(data: bytes) -> bytes:
    """Returns the body of one record."""
    length = int.from_bytes(data[84:88], "big")
    return data[88 : 88 + length]


@each_version
def test_f16_lock_is_what_each_rocketmq_broker_writes(stores: Stores, tmp_path: Path) -> None:
    store = stores.open_ours()
    store.close()
    assert (stores.folder / "lock").read_bytes() == b"rkpy"
    with stores.rocketmq() as theirs:
        assert (stores.folder / "lock").read_bytes() == b"lock"
        theirs.stop()
