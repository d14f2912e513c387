"""Locks of a store's directory: whatever happens to the file, one broker has the store."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreClosedError, StoreDirectoryError, StoreLockedError
from rocketpy_broker.store.check.read_only import StoreReadLock
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.messages import flush_log, numbered, put, read_all
from tests.support.store.stores import (
    OpenStore,
    crash,
    store_in,
)

Harm = Callable[[Path], object]
LOST = "was removed, moved or replaced"


def removed(folder: Path) -> None:
    (folder / "lock").unlink()


def replaced(folder: Path) -> None:
    other = folder / "other"
    other.write_bytes(b"lock")
    other.replace(folder / "lock")


def linked(folder: Path) -> None:
    lock = folder / "lock"
    lock.rename(folder / "kept")
    lock.symlink_to(folder / "kept")


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def moved_and_made_again(folder: Path) -> None:
    moved(folder)
    folder.mkdir()
    (folder / "lock").write_bytes(b"lock")


HARMS = pytest.mark.parametrize("harm", [removed, replaced, linked, moved, moved_and_made_again])


def synced(folder: Path) -> MessageStore:
    return store_in(folder, None, FlushDiskType.SYNC_FLUSH)


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    """Returns an open store with one flushed message."""
    store = synced(tmp_path / "store")
    store.open()
    put(store, numbered(1))
    flush_log(store)
    return store


@HARMS
def test_f12_a_store_whose_lock_is_lost_takes_no_message(
    store: MessageStore, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    harm(store.config.folder)
    with pytest.raises(StoreClosedError, match=LOST):
        put(store, numbered(1, 1))
    assert LOST in caplog.text
    assert store.is_sealed
    # Acknowledged messages stay.
    assert read_all(store) == numbered(1)
    store.close()
    found = store.config.folder
    folder = found if (found / "commitlog").exists() else found.with_name("moved")
    assert (folder / "abort").exists()
    (folder / "lock").unlink(missing_ok=True)
    again = synced(folder)
    again.open()
    assert read_all(again) == numbered(1)
    again.close()


@HARMS
def test_f12_a_store_whose_lock_is_lost_acknowledges_no_flush(
    store: MessageStore, harm: Harm
) -> None:
    put(store, numbered(1, 1))
    plan = store.plan_flush()
    harm(store.config.folder)
    with pytest.raises(OSError, match=LOST) as caught:
        plan.run()
    store.flush_failed(caught.value)
    assert store.refusal is not None
    assert LOST in store.refusal
    assert read_all(store) == numbered(1)
    store.close()


def test_f12_a_lock_lost_during_a_flush_acknowledges_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, numbered(1, 1))
    plan = store.plan_flush()
    flush = os.fdatasync

    def flush_slowly(descriptor: int) -> None:
        flush(descriptor)
        (store.config.folder / "lock").unlink(missing_ok=True)

    monkeypatch.setattr(os, "fdatasync", flush_slowly)
    with pytest.raises(OSError, match=LOST):
        plan.run()
    crash(store)


def test_f12_a_store_that_stops_with_its_lock_lost_says_so_and_counts_as_crashed(
    store: MessageStore,
) -> None:
    removed(store.config.folder)
    with pytest.raises(OSError, match=LOST):
        store.close()
    assert (store.config.folder / "abort").exists()
    again = synced(store.config.folder)
    assert again.open().abnormal
    again.close()


def other_names(folder: Path) -> list[Path]:
    link = folder.with_name("link")
    link.symlink_to(folder)
    return [folder, link, folder / ".." / folder.name]


@pytest.mark.parametrize("harm", [lambda _folder: None, removed, replaced])
def test_f12_a_directory_in_use_is_refused_by_whatever_name(
    store: MessageStore, harm: Harm
) -> None:
    for folder in other_names(store.config.folder):
        harm(store.config.folder)
        (store.config.folder / "lock").touch()
        with pytest.raises(StoreLockedError, match="in use by another broker"):
            synced(folder).open()
        with pytest.raises(StoreLockedError), StoreReadLock(folder):
            pass
    crash(store)


def test_f12_a_directory_that_was_moved_is_still_in_use(store: MessageStore) -> None:
    moved(store.config.folder)
    with pytest.raises(StoreLockedError):
        synced(store.config.folder.with_name("moved")).open()
    crash(store)


def test_f12_a_reader_keeps_brokers_out_and_other_readers_in(new_store: OpenStore) -> None:
    store = new_store()
    store.open()
    store.close()
    for has_file in (True, False):
        reader = StoreReadLock(store.config.folder)
        with reader, StoreReadLock(store.config.folder), pytest.raises(StoreLockedError):
            new_store().open()
        if has_file:
            removed(store.config.folder)
    new_store().open()


def test_f12_a_second_store_of_the_process_takes_no_lock_from_the_first(
    store: MessageStore,
) -> None:
    with pytest.raises(StoreLockedError):
        synced(store.config.folder).open()
    with pytest.raises(StoreLockedError), StoreReadLock(store.config.folder):
        pass
    script = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
    )
    path = store.config.folder / "lock"
    tried = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False)
    # RocketMQ uses only the file's lock.
    assert b"BlockingIOError" in tried.stderr
    store.close()


@pytest.mark.parametrize(
    "code", [errno.EBADF, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL, errno.ENOSYS]
)
def test_f12_where_directories_have_no_locks_the_file_is_locked_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    store = synced(tmp_path / "store")
    store.open()
    assert "only the lock of the file `lock` in it keeps other brokers out" in caplog.text
    put(store, numbered(1))
    removed(store.config.folder)
    with pytest.raises(StoreClosedError, match=LOST):
        put(store, numbered(1))
    crash(store)
    with StoreReadLock(store.config.folder):
        pass


def test_f12_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    with pytest.raises(StoreDirectoryError, match=r"lock: cannot be locked \(No locks available\)"):
        synced(tmp_path / "store").open()
