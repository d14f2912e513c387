"""`StoreCheck` on stores with a history: lost parts, other brokers, several index files."""

from __future__ import annotations

import shutil
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
from tests.blocks import wire_block
from tests.store.check.planted_faults import FIRST, write_at
from tests.store.conftest import QUEUE_FILE_BYTES, SEGMENT_BYTES, STORE_HOST, crash
from tests.store.messages import OTHER, QUEUE, delete_topic, flush_log, numbered, put, put_all

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
    assert "behind the blank record are not zero" in notes(folder)


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
    text = "the record has queue offset 0 of TopicB-0, which a record before it has too"
    assert text in found


def test_rocketmq_leaves_no_mark_of_a_deleted_topic_and_that_is_fine(tmp_path: Path) -> None:
    deleted_and_made_again(tmp_path)
    shutil.rmtree(tmp_path / "rocketpy")
    assert faults(tmp_path) == []


def test_records_of_a_topic_that_another_broker_deleted_are_a_note(folder: Path) -> None:
    shutil.rmtree(folder / "rocketpy")
    shutil.rmtree(folder / "consumequeue" / "TopicB")
    assert faults(folder) == []
    assert "does not exist; 3 records of TopicB-0 are of a deleted topic" in notes(folder)


def test_a_topic_deleted_since_the_manifest_is_fine(folder: Path) -> None:
    store = new_store(folder)
    store.open()
    delete_topic(store, OTHER.topic)
    crash(store)
    assert faults(folder) == []


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
