"""Files beside the log in a store's directory, and missing ones, for each side."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.files.topic_marks import TopicMarks
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.units import UNIT
from rocketpy_broker.store.values import QueueKey
from tests.interop.drivers import RocketMQError
from tests.interop.remoting.clients import until
from tests.interop.rocketmq import VERSIONS
from tests.interop.stores import READ_WHOLE_LOG, MakeStores, Stores, messages, queue_files
from tests.support.store.messages import delete_topic, flush_log
from tests.support.store.planted_faults import write_at
from tests.support.store.stores import crash

# RocketMQ 5.5's commitLogRecoverMaxNum.
SEGMENTS_READ = 10
A0 = QueueKey("TopicA", 0)
B0 = QueueKey("TopicB", 0)


def fill(stores: Stores) -> None:
    """Writes messages of two topics, and closes the store cleanly."""
    store = stores.open_ours()
    for number in range(9):
        stores.append_ours(store, A0, messages(7, f"a{number}"))
        stores.append_ours(store, B0, messages(3, f"b{number}"))
    store.close()


@pytest.fixture
def filled(stores: Stores) -> Stores:
    """Returns a store that we wrote and closed."""
    fill(stores)
    return stores


@pytest.mark.parametrize("crashed", [False, True])
def test_f14_what_we_keep_beside_the_log_is_left_alone(filled: Stores, crashed: bool) -> None:
    folder = filled.folder
    marks = folder / "config" / "deletedTopics.json"
    emptied = marks.with_name("emptiedTopics.json")
    TopicMarks(marks).mark("Gone", 100)
    TopicMarks(emptied).mark("Emptied", 100)
    ours_alone = {
        marks: marks.read_bytes(),
        emptied: emptied.read_bytes(),
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
    # For this reason our own files beside the log are in folders of their own.
    (filled.folder / name).write_bytes(b"abc")
    with pytest.raises(RocketMQError, match="does not load"), filled.rocketmq():
        pass


@pytest.mark.parametrize("version", VERSIONS)
def test_s06_the_queues_that_rocketmq_rebuilds_are_ours_byte_for_byte(filled: Stores) -> None:
    ours = queue_files(filled)
    shutil.rmtree(filled.folder / "consumequeue")
    # The checkpoint names the queues that are gone.
    (filled.folder / "checkpoint").unlink()
    (filled.folder / "abort").touch()
    with filled.rocketmq(**READ_WHOLE_LOG) as theirs:
        filled.check_rocketmq(theirs)
        theirs.stop()
    assert queue_files(filled) == ours


@pytest.mark.parametrize(
    ("lost", "how", "segments_read"),
    [
        # RocketMQ adds the log's records after the last record that any queue has.
        ("TopicA", "stopped", 0),
        ("", "stopped", SEGMENTS_READ),
        # RocketMQ adds the records that the checkpoint does not cover: few.
        ("TopicA", "killed", 1),
        ("", "killed", 1),
        ("", "killed, without checkpoint", SEGMENTS_READ),
    ],
)
def test_f14_rocketmq_5_5_makes_lost_queues_of_a_few_segments_and_we_of_all(
    new_stores: MakeStores, lost: str, how: str, segments_read: int
) -> None:
    """Asserts that a start and a clean stop of ours restore a directory's lost queues."""
    stores = new_stores(segment_bytes=1024)
    fill(stores)
    whole = queue_files(stores)
    segments = sorted(int(path.name) for path in (stores.folder / "commitlog").iterdir())
    assert len(segments) > SEGMENTS_READ + 2
    shutil.rmtree(stores.folder / "consumequeue" / lost)
    if how != "stopped":
        (stores.folder / "abort").touch()
    if how == "killed, without checkpoint":
        (stores.folder / "checkpoint").unlink()
    copy = replace(stores, folder=stores.folder.with_name("copy"))
    shutil.copytree(stores.folder, copy.folder)
    with copy.rocketmq() as theirs:
        bounds = theirs.range(A0)
    begin = segments[-segments_read] if segments_read else 1 << 60
    shown = sum(offset >= begin for offset in places_of(whole, A0))
    assert bounds["max"] - bounds["min"] == shown < len(stores.written[A0])
    ours = stores.open_ours()
    ours.close()
    assert queue_files(stores) == whole
    with stores.rocketmq() as theirs:
        stores.check_rocketmq(theirs)
        theirs.stop()
    stores.check_both_read_the_same()


def places_of(files: Mapping[Path, bytes], queue: QueueKey) -> list[int]:
    """Returns the log positions of a queue's records, by its files."""
    own = [
        path for path in sorted(files) if path.parts[-3:-1] == (queue.topic, str(queue.queue_id))
    ]
    data = b"".join(files[path] for path in own)
    units = np.frombuffer(data, UNIT)
    found: list[int] = units["physical_offset"][units["size"] > 0].tolist()
    return found


@pytest.mark.parametrize("version", VERSIONS)
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
    store = filled.open_ours()
    for number in range(9):
        filled.append_ours(store, A0, messages(7, f"c{number}"))
        filled.append_ours(store, B0, messages(3, f"d{number}"))
    (crash if crashed else MessageStore.close)(store)
    if crashed:
        # A power cut may leave the queues as they were when RocketMQ flushed them.
        shutil.rmtree(queues)
        shutil.copytree(flushed, queues)
    filled.check_both_read_the_same()


@pytest.mark.parametrize(
    ("settings", "position"),
    [({}, None), ({}, 0), ({"enableAcceleratedRecovery": True}, None)],
    ids=["ours", "zero, by times", "ours, accelerated"],
)
def test_f14_rocketmq_5_5_completes_our_queues_from_the_checkpoints_position(
    filled: Stores, settings: dict[str, object], position: int | None
) -> None:
    """Opens a crashed store; without a position RocketMQ goes by times, as older brokers do."""
    with filled.rocketmq() as theirs:
        filled.put_rocketmq(theirs, A0, messages(5, "theirs"))
        theirs.stop()
    queues, flushed = filled.folder / "consumequeue", filled.scratch / "flushed"
    store = filled.open_ours()
    filled.append_ours(store, A0, messages(7, "flushed"))
    flush_log(store)
    store.flush_derived()
    at_flush = store.positions().log_end
    shutil.copytree(queues, flushed)
    for number in range(3):
        filled.append_ours(store, A0, messages(7, f"later {number}"))
        filled.append_ours(store, B0, messages(7, f"later {number}"))
    store.dispatch()
    crash(store)
    # A power cut leaves the queues as they were flushed.
    shutil.rmtree(queues)
    shutil.copytree(flushed, queues)
    checkpoint = filled.folder / "checkpoint"
    assert int.from_bytes(checkpoint.read_bytes()[40:48], "big") == at_flush
    if position is not None:
        write_at(checkpoint, 40, position.to_bytes(8, "big"))
    with filled.rocketmq(**settings) as theirs:
        filled.check_rocketmq(theirs)
        filled.put_rocketmq(theirs, B0, messages(5, "theirs again"))
        filled.check_rocketmq(theirs)
        theirs.kill()
    filled.check_both_read_the_same()


def test_f14_a_deleted_topic_stays_deleted_in_rocketmq(filled: Stores) -> None:
    store = filled.open_ours()
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
        until(lambda: len(theirs.query("TopicA", "shared")) == 27)
        assert [record["body"] for record in theirs.query("TopicA", "a4-3")] == [b"a4 3"]
        theirs.stop()
