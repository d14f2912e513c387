"""Command that runs a module of this package in another process.

`python -m` would put the working directory first in the module path. A project's file `secrets.py`
there would replace the standard library's module. The command appends the directories of this
program's module path instead, so the process finds what this program found.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

_CODE = (
    "import importlib, sys; sys.path = [*filter(None, sys.path), *{paths!r}]; "
    "importlib.import_module(sys.argv.pop(1)).main()"
)


def program_command(module: str) -> list[str]:
    """Returns the command that runs `main` of `module` with this program's interpreter."""
    return [sys.executable, "-c", _CODE.format(paths=[*_module_path()]), module]


def _module_path() -> Iterator[str]:
    """Yields this program's module path; skips a working directory that was removed."""
    for each in sys.path:
        with contextlib.suppress(OSError):
            yield str(Path(each).absolute())
