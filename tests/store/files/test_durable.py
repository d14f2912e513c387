"""File changes in steps that a power cut may interrupt: contents first, then names."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.store.files import durable

OLD = "old"
SUB = "sub"


class Disk:
    """The durable state of a disk: contents by inode, and the names in each folder."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        for path in [top, *top.rglob("*")]:
            self._note(path)

    def _note(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = names_in(path)
        else:
            self._contents[path.stat().st_ino] = path.read_bytes()

    def flush(self, descriptor: int) -> None:
        """Replaces fsync."""
        self._note(Path(f"/proc/self/fd/{descriptor}").resolve())

    def rename(self, path: Path, target: Path) -> None:
        """Replaces rename; asserts that the contents were flushed before.

        Files of `create_unflushed` are exempt: a power cut may leave them empty.
        """
        if path.is_file() and any(path.read_bytes()):
            assert self._contents.get(path.stat().st_ino) == path.read_bytes(), "not flushed"
        path.rename(target)

    def assert_whole(self) -> None:
        """Asserts that all files are durable as they are now."""
        for path in [self._top, *self._top.rglob("*")]:
            if path.is_dir():
                assert self._names.get(path, {}) == names_in(path), (
                    f"names in {path} are not flushed"
                )
            else:
                assert self._contents.get(path.stat().st_ino) == path.read_bytes()


def names_in(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def create(folder: Path) -> None:
    os.close(durable.create_allocated(folder / "sub" / "new", 4096))


def replace(folder: Path) -> None:
    with durable.replacing(folder / OLD) as file:
        file.write(b"new")


def create_unflushed(folder: Path) -> None:
    descriptor, folders = durable.create_unflushed(folder / "a" / "b" / "new", 4096)
    os.fdatasync(descriptor)
    os.close(descriptor)
    durable.sync_new(folders)
    assert folders == []


OPERATIONS: dict[str, Callable[[Path], Any]] = {
    "make_folder": lambda folder: durable.make_folder(folder / "a" / "b"),
    "create_allocated": create,
    "create_unflushed": create_unflushed,
    "replace_text": lambda folder: durable.replace_text(folder / OLD, "new"),
    "replace_text, new": lambda folder: durable.replace_text(folder / "new", "new"),
    "replace_encoded": lambda folder: durable.replace_encoded(folder / OLD, b"new"),
    "replace_bytes": lambda folder: durable.replace_bytes(folder / OLD, b"new"),
    "replacing": replace,
    "move": lambda folder: durable.move(folder / OLD, folder / SUB / "moved"),
    "remove_file": lambda folder: durable.remove_file(folder / OLD),
    "remove_folder": lambda folder: durable.remove_folder(folder / SUB),
}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Returns a disk with a file and a folder on it."""
    (tmp_path / OLD).write_text("old content")
    (tmp_path / SUB).mkdir()
    (tmp_path / SUB / "file").write_text("content")
    made = Disk(tmp_path)
    rename = os.rename

    def checked(path: Path, target: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", rename)
            made.rename(Path(path), Path(target))

    monkeypatch.setattr(os, "fsync", made.flush)
    monkeypatch.setattr(os, "fdatasync", made.flush)
    monkeypatch.setattr(os, "rename", checked)
    monkeypatch.setattr(os, "replace", checked)
    return made


@pytest.mark.parametrize("name", OPERATIONS)
def test_f2_a_change_is_on_the_disk_when_it_is_done_and_contents_before_names(
    disk: Disk, tmp_path: Path, name: str
) -> None:
    before = names_in(tmp_path) | names_in(tmp_path / SUB)
    OPERATIONS[name](tmp_path)
    after = names_in(tmp_path) | (names_in(tmp_path / SUB) if (tmp_path / SUB).exists() else {})
    assert before != after
    disk.assert_whole()


def test_f08_a_file_system_that_cannot_be_flushed_is_an_error(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    durable.sync_file_system(descriptor)
    os.close(descriptor)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        durable.sync_file_system(descriptor)


def test_f2_each_file_system_of_a_store_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers folders that are mounted file systems."""
    for name in ("commitlog", "rocketpy/staging"):
        (tmp_path / name).mkdir(parents=True)
    mounted = {tmp_path / "commitlog": 1, tmp_path / "rocketpy" / "staging": 2}
    monkeypatch.setattr(durable, "device_of", lambda path: mounted.get(path, 0))
    flushed = []
    monkeypatch.setattr(
        durable,
        "sync_file_system",
        lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").resolve()),
    )
    durable.sync_whole_store(tmp_path)
    assert len(flushed) == 3
    assert mounted.keys() <= set(flushed)


def test_a_system_without_syncfs_makes_all_file_systems_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda *_given, **_named: object())
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"))
    durable.sync_whole_store(tmp_path)
    assert synced == ["all"]
