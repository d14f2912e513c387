"""What else lies in a store's directory: what each side keeps beside the log, and what it lacks."""

from __future__ import annotations

import shutil

import pytest

from rocketpy_broker.store.files.deleted_topics import DeletedTopics
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.interop.rocketmq import RocketMQError
from tests.interop.stores import Stores, crash, messages, queue_files
from tests.store.messages import delete_topic

A0 = QueueKey("TopicA", 0)
B0 = QueueKey("TopicB", 0)


@pytest.fixture
def filled(stores: Stores) -> Stores:
    """A store that we wrote and closed."""
    store = stores.ours()
    store.open()
    for number in range(9):
        stores.append_ours(store, A0, messages(7, f"a{number}"))
        stores.append_ours(store, B0, messages(3, f"b{number}"))
    store.close()
    return stores


@pytest.mark.parametrize("crashed", [False, True])
def test_f14_what_we_keep_beside_the_log_is_left_alone(filled: Stores, crashed: bool) -> None:
    folder = filled.folder
    marks = folder / "config" / "deletedTopics.json"
    DeletedTopics(marks).mark("Gone", 100)
    ours_alone = {
        marks: marks.read_bytes(),
        folder / "rocketpy" / "notes" / "0".zfill(20): b"anything",
        folder / "quarantine" / "report.json": b"{}",
        folder / "commitlog.new": b"half written",
        folder / "config" / "topics.json.tmp": b"{",
    }
    for path, content in ours_alone.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if crashed:
        (folder / "abort").touch()
    with filled.rocketmq() as theirs:
        filled.check_rocketmq(theirs)
        filled.put_rocketmq(theirs, A0, messages(30, "theirs"))
        theirs.stop()
    assert {path: path.read_bytes() for path in ours_alone} == ours_alone
    filled.check_both_read_the_same()


@pytest.mark.parametrize("name", ["commitlog/notes.txt", "consumequeue/TopicA/0/notes.txt"])
def test_f14_rocketmq_refuses_a_foreign_file_among_segments(filled: Stores, name: str) -> None:
    # This is why whatever we keep beside the log lies in folders of its own.
    (filled.folder / name).write_bytes(b"abc")
    with pytest.raises(RocketMQError, match="does not load"), filled.rocketmq():
        pass


def test_s06_the_queues_that_rocketmq_rebuilds_are_ours_byte_for_byte(filled: Stores) -> None:
    ours = queue_files(filled)
    shutil.rmtree(filled.folder / "consumequeue")
    (filled.folder / "abort").touch()
    with filled.rocketmq() as theirs:
        filled.check_rocketmq(theirs)
        theirs.stop()
    assert queue_files(filled) == ours


@pytest.mark.parametrize("crashed", [False, True])
def test_f14_rocketmqs_checkpoint_from_before_our_turn_misleads_nobody(
    filled: Stores, crashed: bool
) -> None:
    with filled.rocketmq() as theirs:
        filled.put_rocketmq(theirs, A0, messages(5, "theirs"))
        theirs.stop()
    assert (filled.folder / "checkpoint").exists()
    queues, flushed = filled.folder / "consumequeue", filled.scratch / "flushed"
    shutil.copytree(queues, flushed)
    store = filled.ours()
    store.open()
    for number in range(9):
        filled.append_ours(store, A0, messages(7, f"c{number}"))
        filled.append_ours(store, B0, messages(3, f"d{number}"))
    (crash if crashed else MessageStore.close)(store)
    if crashed:
        # A power cut may leave the queues as they were when RocketMQ flushed them.
        shutil.rmtree(queues)
        shutil.copytree(flushed, queues)
    filled.check_both_read_the_same()


def test_f14_a_deleted_topic_stays_deleted_in_rocketmq(filled: Stores) -> None:
    store = filled.ours()
    store.open()
    delete_topic(store, "TopicA")
    filled.written[A0] = []
    filled.append_ours(store, A0, messages(5, "again"))
    store.close()
    filled.check_both_read_the_same()


def test_s08_rocketmq_needs_no_index_and_makes_it_anew_after_a_crash(filled: Stores) -> None:
    shutil.rmtree(filled.folder / "index")
    with filled.rocketmq() as theirs:
        filled.check_rocketmq(theirs)
        assert theirs.query("TopicA", "a4-3") == []
        theirs.kill()
    (filled.folder / "checkpoint").unlink()
    with filled.rocketmq() as theirs:
        assert [record["body"] for record in theirs.query("TopicA", "a4-3")] == [b"a4 3"]
        assert len(theirs.query("TopicA", "shared")) == 27
        theirs.stop()
