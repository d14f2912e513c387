"""Imports of many modules, without garbage collection in between.

Imported objects stay alive, but Python's collector scans them repeatedly. One of the scans covers
all that Spark has imported. That takes a third of the connector's start in a process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing_much() -> Iterator[None]:
    """Disables garbage collection in the whole process, for short imports alone."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
