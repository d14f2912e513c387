"""The command as a shell runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Mapping

from typer.testing import CliRunner, Result

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app

ROCKETPY = [sys.executable, "-m", "rocketpy_broker"]


def run(broker: LocalBroker, *words: str, stdin: str | bytes | None = None) -> Result:
    """Runs a command against a broker, in this process."""
    return CliRunner().invoke(app, [*words, "--endpoint", broker.endpoint], input=stdin)


def environment(**names: str) -> Mapping[str, str]:
    """Returns this process's environment with `names`, without colours and widths."""
    unwanted = {"FORCE_COLOR", "COLUMNS", "TERM", "NO_COLOR", "ROCKETPY_ENDPOINT"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, **names}


def popen(broker: LocalBroker, *words: str) -> subprocess.Popen[str]:
    """Starts a command against a broker, with pipes to all its ends."""
    return subprocess.Popen(
        [*ROCKETPY, *words, "--endpoint", broker.endpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def on_a_terminal(broker: LocalBroker, *words: str, answer: str = "") -> tuple[int, str]:
    """Runs a command on a terminal of 80 columns; returns its exit code and the terminal's text.

    The text includes `answer`, which is typed in advance.
    """
    master, terminal = pty.openpty()
    command = [*ROCKETPY, *words, "--endpoint", broker.endpoint]
    environ = environment(COLUMNS="80", TERM="xterm-256color")
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environ
    ) as process:
        os.close(terminal)
        os.write(master, answer.encode())
        shown = b""
        while part := _read(master):
            shown += part
    os.close(master)
    return process.returncode, shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        # No process writes to the terminal any more.
        return b""
