"""Entry point of the `rocketpy` command.

Without the package's extra `broker` it prints the command that installs it.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from rocketpy_broker.cli.exits import (
    EXIT_INTERRUPTED,
    interrupts_end_at_once,
    leave_at_once,
)


def main() -> None:
    """Runs the command line, or prints the command that installs the broker."""
    _prepare_streams()
    try:
        with interrupts_end_at_once():
            from rocketpy_broker.cli.commands import app
        app()
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            leave_at_once()
        raise
    except KeyboardInterrupt:
        # The interrupt came before a command started.
        leave_at_once()
    except ModuleNotFoundError as error:
        sys.exit(
            f"rocketpy: the module {error.name!r} is missing; "
            "install the broker with: pip install 'pyspark-rocketpy[broker]'"
        )
    except UnicodeEncodeError:
        sys.exit("rocketpy: an argument is not valid UTF-8")
    except OSError as error:
        # The prefix names the program, which the system's error text does not.
        sys.exit(f"rocketpy: {error.strerror or error}")


def _prepare_streams() -> None:
    """Replaces closed streams by /dev/null, and escapes text that cannot be encoded."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
