"""`StoreCheck` on stores with a history: lost parts, other brokers, several index files."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.check.faults import FINDINGS_PER_FILE_MAX, limited
from rocketpy_broker.store.check.read_only import ReadOnlyQueue, StoreSizes
from rocketpy_broker.store.check.whole_store import Fault, Finding, Note, StoreCheck
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.index.layout import IndexFormat
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.support.blocks import wire_block
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
)
from tests.support.store.planted_faults import FIRST, write_at
from tests.support.store.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, STORE_HOST, crash

DESCRIPTORS = 128
INDEX_FORMAT = IndexFormat(slot_count=7, entry_count_max=5)


def new_store(folder: Path, *, index_enable: bool = True) -> MessageStore:
    """Returns a store with index files of four keys each."""
    config = StoreConfig(
        folder,
        SEGMENT_BYTES,
        QUEUE_FILE_BYTES,
        index_enable=index_enable,
        index_slot_count=INDEX_FORMAT.slot_count,
        index_entry_count_max=INDEX_FORMAT.entry_count_max,
    )
    return MessageStore(config, ManualClock(), STORE_HOST)


def put_keyed(store: MessageStore, count: int, start: int = 0) -> None:
    keys = [f"k{number}" for number in range(start, start + count)]
    store.append(QUEUE, wire_block(QUEUE.topic, numbered(count, start), keys=keys).parsed())


def fill(store: MessageStore) -> None:
    store.open()
    put_keyed(store, 10)
    put_all(store, numbered(30, 10))
    put(store, numbered(3), OTHER)


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Lets the process have few descriptors beside its open ones; returns their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_count = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_count + DESCRIPTORS, hard))
    yield DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder of a store after a clean stop."""
    store = new_store(tmp_path)
    fill(store)
    store.close()
    return tmp_path


def check(folder: Path) -> list[Finding]:
    return list(StoreCheck(folder, StoreSizes.of(folder), INDEX_FORMAT).run())


def faults(folder: Path) -> list[str]:
    """Returns each fault as its path below the folder and its text."""
    return [
        f"{found.path.relative_to(folder)}: {found.text}"
        for found in check(folder)
        if isinstance(found, Fault)
    ]


def notes(folder: Path) -> str:
    return "\n".join(found.text for found in check(folder) if isinstance(found, Note))


# --- Index ---


def test_keys_in_several_index_files_are_compared_file_by_file(folder: Path) -> None:
    assert len(list((folder / "index").iterdir())) == 3
    assert check(folder) == []


def test_an_index_file_that_is_not_full_before_another_is_a_fault(folder: Path) -> None:
    first = min((folder / "index").iterdir())
    write_at(first, 36, (1).to_bytes(4, "big"))
    found = faults(folder)
    assert f"index/{first.name}: has 0 entries and is not full, but a newer file follows" in found
    assert any("keys of records from log offset 0 on" in text for text in found)


def test_a_lost_index_file_is_named(folder: Path) -> None:
    last = max((folder / "index").iterdir())
    last.unlink()
    found = faults(folder)
    assert f"index/{last.name}: is missing, though the manifest names it" in found


def test_keys_of_a_lost_index_file_are_named_once_where_their_entries_would_be(
    folder: Path,
) -> None:
    first, lost, last = sorted((folder / "index").iterdir())
    lost.unlink()
    found = [one for one in check(folder) if "are not entered" in one.text]
    assert [(one.path, one.offset) for one in found] == [(last, INDEX_FORMAT.entries_begin + 20)]
    assert found[0].text.startswith("4 keys of records from log offset ")
    last.unlink()
    found = [one for one in check(folder) if "are not entered" in one.text]
    assert [(one.path, one.offset) for one in found] == [(first, INDEX_FORMAT.file_bytes)]
    assert found[0].text.startswith("6 keys of records from log offset ")


def test_values_ahead_of_the_count_after_a_crash_are_notes(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    fill(store)
    flush_log(store)
    store.dispatch()
    assert len(store.messages.by_key(QUEUE.topic, "k1", 0, 1 << 50, 1)) == 1
    crash(store)
    path = max((tmp_path / "index").iterdir())
    count = int.from_bytes(path.read_bytes()[36:40], "big")
    for place, value in ((8, 1 << 50), (24, 1 << 40), (32, count)):
        write_at(path, place, value.to_bytes(8 if place < 32 else 4, "big"))
    assert faults(tmp_path) == []
    assert "end_timestamp of the header is" in notes(tmp_path)
    assert "end_offset of the header is" in notes(tmp_path)


def test_a_store_without_an_index_is_whole(tmp_path: Path) -> None:
    store = new_store(tmp_path, index_enable=False)
    fill(store)
    store.close()
    assert faults(tmp_path) == []
    assert "there is no index" in notes(tmp_path)


def test_keys_from_before_the_index_was_switched_on_are_told(tmp_path: Path) -> None:
    store = new_store(tmp_path, index_enable=False)
    fill(store)
    store.close()
    again = new_store(tmp_path)
    again.open()
    put_all(again, numbered(30, 40))
    put_keyed(again, 4, 70)
    again.close()
    (text,) = faults(tmp_path)
    assert "10 keys of records from log offset 0 on are not entered" in text


# --- Log and checksums ---


def test_a_body_that_was_stored_with_a_wrong_crc_is_a_fault(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.open()
    put(store, numbered(2))
    block = wire_block(QUEUE.topic, [b"changed"]).parsed()
    block.data[int(block.body_start[0])] ^= 1
    place = store.append(QUEUE, block).physical_offset
    store.close()
    (found,) = (one for one in check(tmp_path) if isinstance(one, Fault))
    assert (found.path.name, found.offset) == (FIRST, place)
    assert "CRC" in found.text


def test_what_lies_behind_a_blank_record_is_a_note(folder: Path) -> None:
    write_at(folder / "commitlog" / FIRST, SEGMENT_BYTES - 1, b"x")
    assert faults(folder) == []
    assert "after the blank record are not zero" in notes(folder)


def test_a_segment_that_was_made_ahead_of_a_crash_is_fine(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    fill(store)
    before = len(list((tmp_path / "commitlog").iterdir()))
    while not store._log.is_half_full:
        put(store, [b"more"])
    store.preallocate()
    flush_log(store)
    crash(store)
    assert len(list((tmp_path / "commitlog").iterdir())) == before + 1
    assert faults(tmp_path) == []


def test_a_lost_segment_is_told_by_mark_and_manifest(folder: Path) -> None:
    max((folder / "commitlog").iterdir()).unlink()
    found = "\n".join(faults(folder))
    assert "rocketpy/flushed: the log was on disk up to" in found
    assert "rocketpy/manifest.json: is of a log that ends at" in found
    with pytest.raises(StoreDirectoryError, match="restore the missing files"):
        new_store(folder).open()


def test_a_folder_among_the_segments_is_a_note(folder: Path) -> None:
    (folder / "commitlog" / "old").mkdir()
    assert faults(folder) == []
    assert "is no file" in notes(folder)


# --- Queues ---


def test_files_of_a_queue_that_hold_no_unit_yet_are_fine(folder: Path) -> None:
    for name in (f"TopicB/0/{QUEUE_FILE_BYTES:020d}", f"TopicC/0/{FIRST}"):
        path = folder / "consumequeue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(QUEUE_FILE_BYTES))
    assert check(folder) == []


def deleted_and_made_again(folder: Path) -> None:
    """Writes a topic with two records of queue offset 0, and removes its tombstone."""
    store = new_store(folder)
    fill(store)
    delete_topic(store, OTHER.topic)
    put(store, [b"new"], OTHER)
    store.close()
    (folder / "config" / "deletedTopics.json").unlink()


def test_two_records_of_one_queue_offset_are_a_fault(tmp_path: Path) -> None:
    deleted_and_made_again(tmp_path)
    found = "\n".join(faults(tmp_path))
    text = "the record has queue offset 0 of TopicB-0, which an earlier record has, too"
    assert text in found


def test_rocketmq_leaves_no_mark_of_a_deleted_topic_and_that_is_fine(tmp_path: Path) -> None:
    deleted_and_made_again(tmp_path)
    shutil.rmtree(tmp_path / "rocketpy")
    assert faults(tmp_path) == []


def test_records_of_a_topic_that_another_broker_deleted_are_a_note(folder: Path) -> None:
    shutil.rmtree(folder / "rocketpy")
    shutil.rmtree(folder / "consumequeue" / "TopicB")
    assert faults(folder) == []
    assert "does not exist; the log has 3 records of TopicB-0, a deleted topic" in notes(folder)


def test_a_topic_deleted_since_the_manifest_is_fine(folder: Path) -> None:
    store = new_store(folder)
    store.open()
    delete_topic(store, OTHER.topic)
    crash(store)
    assert faults(folder) == []


def test_a_store_of_many_queues_is_checked_with_few_descriptors(
    tmp_path: Path, few_descriptors: int
) -> None:
    store = new_store(tmp_path)
    store.open()
    for number in range(2 * few_descriptors):
        put(store, numbered(1), QueueKey("Many", number))
    store.close()
    path = tmp_path / f"consumequeue/Many/{few_descriptors}/{FIRST}"
    write_at(path, 11, b"\7")
    text = f"consumequeue/Many/{few_descriptors}/{FIRST}: unit 0: size 7"
    assert [one for one in faults(tmp_path) if one.startswith(text)]


def test_a_queue_with_a_misplaced_file_is_not_read(folder: Path) -> None:
    queue = folder / "consumequeue" / "TopicB" / "0"
    (queue / f"{90 * QUEUE_FILE_BYTES:020d}").write_bytes(bytes(QUEUE_FILE_BYTES))
    with pytest.raises(StoreDirectoryError, match="a file before it is missing"):
        ReadOnlyQueue.load(queue, QUEUE_FILE_BYTES, 0)


# --- Small files and the rest ---


def test_a_copy_without_a_lock_file_is_checked_and_gets_none(folder: Path) -> None:
    (folder / "lock").unlink()
    assert check(folder) == []
    assert not (folder / "lock").exists()


def test_the_mark_of_a_run_before_another_brokers_says_nothing(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    fill(store)
    flush_log(store)
    crash(store)
    (tmp_path / "abort").write_text("4711")
    assert faults(tmp_path) == []
    assert "another broker wrote them" in notes(tmp_path)


def test_files_of_people_among_the_configuration_are_let_alone(folder: Path) -> None:
    (folder / "config" / "notes.txt").write_text("{ no JSON")
    assert check(folder) == []


@pytest.mark.parametrize("kind", [Fault, Note])
def test_so_many_findings_of_a_file_are_listed_and_the_rest_is_counted(
    kind: type[Fault | Note],
) -> None:
    path, other = Path("many"), Path("one")
    made: list[Finding] = [Note(path, n, "seen") for n in range(FINDINGS_PER_FILE_MAX)]
    made += [kind(path, 1000, "more"), Note(path, 2000, "more"), Fault(other, 0, "single")]
    found = list(limited(made))
    assert found[:-1] == [*made[:FINDINGS_PER_FILE_MAX], Fault(other, 0, "single")]
    assert found[-1] == kind(path, 0, "2 more findings are not listed")
