"""Files in one folder that a process has open.

A count of all descriptors of a process would change with its other work: threads, sockets, plugins.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_below(folder: Path) -> int:
    """Returns how many descriptors of this process are of files below `folder`."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor that lists them is closed by now; other threads close theirs at any time.
        with contextlib.suppress(OSError):
            count += link.readlink().is_relative_to(folder.resolve())
    return count
