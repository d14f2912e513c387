"""Standard output to a closed pipe or a full disk."""

from __future__ import annotations

import logging
import os
import sys

logger = logging.getLogger(__name__)


def drop() -> None:
    """Redirects standard output to /dev/null, after its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(line: str) -> None:
    """Prints a line of a server, which keeps running if standard output takes no more."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        drop()
        if not isinstance(error, BrokenPipeError):
            logger.warning("cannot print the line %r: %s", line, error.strerror)
