"""Exit codes, and the immediate end of a command.

0 is success, or a pipe that its reader closed; 1 refused, or no broker; 2 wrong use;
130 interrupted. The module imports no library, so that `main` can use it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

EXIT_REFUSED = 1
EXIT_INTERRUPTED = 130


def leave_at_once() -> NoReturn:
    """Ends the process at once; the thread of a running call would print a trace otherwise."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(EXIT_INTERRUPTED)
