"""Permissions of a store's files, and links in its directory, which are refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.check.read_only import StoreReadLock
from rocketpy_broker.store.files import durable
from rocketpy_broker.store.message_store import MessageStore
from tests.support.store.messages import numbered, put, put_all
from tests.support.store.stores import (
    QUEUE_FILE_BYTES,
    OpenStore,
    store_in,
)

LINKED = ("commitlog", "consumequeue/T", "index", "config/topics.json", "rocketpy/flushed", "lock")


@pytest.fixture
def anyone_may() -> Iterator[None]:
    """Sets a mask that takes no permission away."""
    before = os.umask(0)
    yield
    os.umask(before)


def others_may(folder: Path) -> list[Path]:
    return [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


@pytest.mark.usefixtures("anyone_may")
def test_b12_a_store_is_its_owner_s_alone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "store"
    store = store_in(folder)
    store.open()
    put_all(store, numbered(40))
    store.close()
    assert others_may(folder) == []
    assert others_may(tmp_path / "made") == []


@pytest.mark.usefixtures("anyone_may")
def test_b12_files_that_are_replaced_are_their_owner_s_alone(tmp_path: Path) -> None:
    folder = durable.make_folder(tmp_path / "a" / "b")
    for _ in range(2):
        durable.replace_text(folder / "text", "x")
        durable.replace_bytes(folder / "bytes", b"x")
        with durable.replacing(folder / "written") as file:
            file.write(b"x")
    durable.create_empty(folder / "empty")
    assert others_may(tmp_path / "a") == []


def test_b12_permissions_of_files_that_are_there_stay(new_store: OpenStore, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir(mode=0o750)
    new_store().open()
    assert (tmp_path / "config").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("name", LINKED)
def test_b12_a_link_in_the_directory_is_refused_by_name(
    new_store: OpenStore, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path.with_name("elsewhere")
    elsewhere.mkdir(exist_ok=True)
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StoreDirectoryError) as refused:
        new_store().open()
    assert refused.value.path == link
    assert f"is a link to {elsewhere}" in refused.value.remark
    assert "move its target to this place" in refused.value.remark
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("number", [0, 1])
def test_b12_a_link_for_a_file_of_a_queue_is_refused_by_name(
    new_store: OpenStore, tmp_path: Path, number: int, store: MessageStore
) -> None:
    """Covers a file that the manifest records as whole, too."""
    put(store, [b"one"])
    store.close()
    elsewhere = tmp_path.with_name(f"elsewhere-{number}")
    file = tmp_path / f"consumequeue/TopicA/2/{0:020d}"
    elsewhere.write_bytes(file.read_bytes())
    link = file.with_name(f"{number * QUEUE_FILE_BYTES:020d}")
    link.unlink(missing_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StoreDirectoryError, match=f"is a link to {elsewhere}") as refused:
        new_store().open()
    assert refused.value.path == link


def test_b12_a_link_below_a_folder_that_lies_beside_a_queues_files_is_refused_too(
    new_store: OpenStore, tmp_path: Path
) -> None:
    inner = tmp_path / "consumequeue/TopicA/2/notes"
    inner.mkdir(parents=True)
    (inner / "link").symlink_to(tmp_path)
    with pytest.raises(StoreDirectoryError, match="is a link to") as refused:
        new_store().open()
    assert refused.value.path == inner / "link"
    (inner / "link").unlink()
    (tmp_path / "consumequeue" / "notes.txt").write_bytes(b"")
    new_store().open()


@pytest.mark.parametrize("name", ["config/topics.json", "checkpoint", "abort", "lock"])
def test_b12_what_is_neither_file_nor_folder_is_refused(
    new_store: OpenStore, tmp_path: Path, name: str
) -> None:
    """Covers a FIFO: an open would block the start until a writer comes."""
    (tmp_path / "config").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreDirectoryError, match=f"{name}: is neither a file nor a folder"):
        new_store().open()


def test_b12_the_directory_itself_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    store = store_in(tmp_path / "link")
    store.open()
    store.close()
    assert (tmp_path / "there" / "commitlog").is_dir()


def test_b12_folders_of_others_are_not_looked_into(new_store: OpenStore, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "link").symlink_to("/")
    new_store().open()


def test_b12_the_offline_commands_follow_no_link_either(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "0".zfill(20)).symlink_to("/etc/passwd")
    with (
        pytest.raises(StoreDirectoryError, match="is a link to /etc/passwd"),
        StoreReadLock(tmp_path),
    ):
        pass


def test_b12_a_link_that_cannot_be_read_is_refused_as_well(
    new_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commitlog").symlink_to("/etc")

    def gone(_path: str) -> str:
        raise OSError("nothing there")

    monkeypatch.setattr(os, "readlink", gone)
    with pytest.raises(StoreDirectoryError, match="is a link, and links in a store are not"):
        new_store().open()


def test_b12_a_link_that_comes_later_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    path = tmp_path / "file"
    for link in (path, path.with_name("file.tmp"), durable.unfinished_path(tmp_path)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    writers: list[Callable[[], object]] = [
        lambda: durable.replace_bytes(path, b"new"),
        lambda: durable.replace_text(path, "new"),
        lambda: durable.append_bytes(path, b"new", 0),
        lambda: durable.create_allocated(path, 4),
        lambda: durable.create_empty(path),
    ]
    for write in writers:
        with pytest.raises(OSError, match=r"symbolic links|exists"):
            write()
    assert target.read_bytes() == b"kept"
