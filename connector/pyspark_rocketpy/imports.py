"""Imports of much at once, without looks for garbage in between. Holds no state.

What an import makes lives on. Python's collector looks through it all the same, and in between once
through all that Spark has imported: that is a third of what our start costs a process.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing_much() -> Iterator[None]:
    """For imports alone, which are short: nothing in the process is collected meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
