"""Standard output whose reader may close the pipe."""

from __future__ import annotations

import os
import sys


def drop() -> None:
    """Redirects standard output to /dev/null, after its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    """Prints a line of a server, which keeps running after the reader closed the pipe."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        drop()
