"""Exit codes and the end of a command. Imports no library, so that `main` can use it.

0 is success, or the reader of a pipe closed it; 1 refused, or no broker; 2 wrong use;
130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

EXIT_REFUSED = 1
EXIT_INTERRUPTED = 130


def leave_at_once() -> NoReturn:
    """Ends while a call is under way, whose thread would print a trace as the interpreter ends."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(EXIT_INTERRUPTED)
