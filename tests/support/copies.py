"""Sparse copies of stores: most of a store's files is not written yet."""

from __future__ import annotations

import subprocess
from pathlib import Path


def copy_store(folder: Path, to: Path) -> None:
    """Copies a folder's content to `to`, which may exist. An index alone has 420 MB of holes."""
    to.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--sparse=always", f"{folder}/.", str(to)], check=True)


def copy_running_store(folder: Path, to: Path) -> None:
    """Copies a running broker's store, but `*.tmp`, which may be removed at any moment."""
    inside = [path for path in folder.rglob("*") if path.suffix != ".tmp"]
    to.mkdir(parents=True, exist_ok=True)
    for path in inside:
        if path.is_dir():
            (to / path.relative_to(folder)).mkdir(parents=True, exist_ok=True)
    files = [str(path.relative_to(folder)) for path in inside if path.is_file()]
    words = ["--archive", "--sparse=always", "--parents", f"--target-directory={to}"]
    subprocess.run(["cp", *words, *files], cwd=folder, check=True)
