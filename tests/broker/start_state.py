"""A program that prints the state that its start gave it, and ends as its input says."""

from __future__ import annotations

import atexit
import json
import locale
import os
import signal
import sys
import threading
import time
from pathlib import Path


def handler_of(number: int) -> str:
    handler = signal.getsignal(number)
    return getattr(handler, "__name__", str(handler))


if __name__ == "__main__":
    state = {
        "arguments": sys.argv,
        "is_main": sys.modules["__main__"].__dict__ is globals(),
        "package": __package__,
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "descriptors": sorted(map(str, Path("/proc/self/fd").iterdir())),
        "streams": [
            [each.name, each.encoding, each.errors, each.line_buffering, each.isatty()]
            for each in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "group": os.getpgrp(),
        "session": os.getsid(0),
        "signals": [handler_of(each) for each in sorted(signal.valid_signals())],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "time zone": time.tzname,
        "locale": locale.setlocale(locale.LC_ALL),
        "command line": [name for name in sys.modules if name.startswith("rocketpy_broker.cli")],
    }
    sys.stdout.write(f"{json.dumps(state)}\n")
    atexit.register(print, "at exit")
    # The program's end waits for a thread.
    threading.Timer(0.01, print, ["thread"]).start()
    text = sys.stdin.readline()
    sys.stderr.write(f"{text!r}\n")
    if text == "interrupt\n":
        raise KeyboardInterrupt
    sys.exit(int(text) if text.isdigit() else text)
