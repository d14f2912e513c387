"""Interpreters of a version: named by the user, on the PATH, or one of pyenv's.

Each candidate is run: pyenv puts programs on the PATH that only report an error.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which

_TELL = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
_ANSWER_SECONDS_MAX = 30


def find(version: str, told: Sequence[str] = ()) -> Path | None:
    """Returns an interpreter of `version`, such as "3.12", that can make environments, or None."""
    for program in _candidates(version, told):
        if version_of(program) == version:
            return program
    return None


def version_of(program: Path) -> str | None:
    """Returns its version, such as "3.12"; None if it does not run or cannot make environments."""
    try:
        done = subprocess.run(
            [program, "-c", _TELL],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _candidates(version: str, told: Sequence[str]) -> Iterator[Path]:
    for name in (*told, f"python{version}"):
        found = which(name)
        if found:
            yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in sorted(root.glob(f"versions/{version}.*"), key=_patch, reverse=True):
        yield folder / "bin" / "python"
    yield Path(sys.executable)


def _patch(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]
