"""Sparse copies of stores: most of a store's files is not written yet."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

# Copies of a running store that a thread of the broker may spoil, one after the other.
SPOILT_MAX = 20


def copy_store(folder: Path, to: Path) -> None:
    """Copies a folder's content to `to`, which may exist. An index alone has 420 MB of holes."""
    to.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--sparse=always", f"{folder}/.", str(to)], check=True)


def copy_running_store(folder: Path, to: Path) -> None:
    """Copies a running broker's store to `to`, which does not exist; leaves out each `*.tmp`.

    Begins again if the broker has renamed or removed a file meanwhile.
    """
    for _ in range(SPOILT_MAX):
        with suppress(subprocess.CalledProcessError, FileNotFoundError):
            _copy_once(folder, to)
            return
        shutil.rmtree(to)
    _copy_once(folder, to)


def _copy_once(folder: Path, to: Path) -> None:
    to.mkdir(parents=True)
    inside = [path for path in folder.rglob("*") if path.suffix != ".tmp"]
    for path in inside:
        if path.is_dir():
            (to / path.relative_to(folder)).mkdir(parents=True, exist_ok=True)
    # What has gone by now ends the copy, too.
    files = [str(path.relative_to(folder)) for path in inside if not path.is_dir()]
    words = ["--archive", "--sparse=always", "--parents", f"--target-directory={to}"]
    subprocess.run(["cp", *words, *files], cwd=folder, check=True)
