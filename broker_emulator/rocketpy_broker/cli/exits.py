"""Exit codes, the parent process, and the immediate end of a command.

0 is success, or a pipe that its reader closed; 1 refused, or no broker; 2 wrong use;
130 interrupted. The module imports no library, so that `main` can use it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

EXIT_REFUSED = 1
EXIT_INTERRUPTED = 130
# Read before the imports of a command, which take half a second: the parent may end meanwhile.
PARENT_PID = os.getppid()


def leave_at_once() -> NoReturn:
    """Ends the process at once; the thread of a running call would print a trace otherwise."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def interrupts_end_at_once() -> Iterator[None]:
    """Ends the process at once on an interrupt in its block, without a trace.

    Imports take most of a command's time.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_usual = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)
