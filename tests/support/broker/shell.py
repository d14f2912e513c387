"""The command as a shell runs it."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Mapping
from contextlib import suppress
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

from typer.testing import CliRunner, Result

from rocketpy_broker import LocalBroker
from rocketpy_broker.cli.commands import app
from tests.support.time_limits import WAIT_SECONDS_MAX

ROCKETPY = [sys.executable, "-m", "rocketpy_broker"]


def run(broker: LocalBroker, *words: str, stdin: str | bytes | None = None) -> Result:
    """Runs a command against a broker, in this process."""
    return CliRunner().invoke(app, [*words, "--endpoint", broker.endpoint], input=stdin)


def environment(**names: str) -> Mapping[str, str]:
    """Returns this process's environment with `names`, without colours and widths."""
    unwanted = {"FORCE_COLOR", "COLUMNS", "TERM", "NO_COLOR", "ROCKETPY_ENDPOINT"}
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, **names}


def started(*words: str, **options: Any) -> Popen[str]:
    """Starts a command, with Popen's options; it is forked from a process with its imports."""
    settings: dict[str, Any] = {"text": True, "env": environment(), **options}
    process: Popen[str] = Popen([*ROCKETPY, *words], **settings)
    return process


def ended(*words: str, **options: Any) -> CompletedProcess[str]:
    """Runs a command to its end, with an empty input if `options` names none."""
    options = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE} | options
    with started(*words, **options) as process:
        try:
            output, errors = process.communicate(timeout=WAIT_SECONDS_MAX)
        except BaseException:
            process.kill()
            raise
    return CompletedProcess(words, process.returncode, output, errors)


def popen(broker: LocalBroker, *words: str) -> Popen[str]:
    """Starts a command against a broker, with pipes to all its ends."""
    return started(*words, "--endpoint", broker.endpoint, stdin=PIPE, stdout=PIPE, stderr=PIPE)


def on_a_terminal(broker: LocalBroker, *words: str, answer: str = "") -> tuple[int, str]:
    """Runs a command on a terminal of 80 columns; returns its exit code and the terminal's text.

    The text includes `answer`, which is typed in advance.
    """
    master, terminal = pty.openpty()
    environ = environment(COLUMNS="80", TERM="xterm-256color")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with started(*words, "--endpoint", broker.endpoint, env=environ, **streams) as process:
        os.close(terminal)
        os.write(master, answer.encode())
        shown = shown_on(master)
    return process.returncode, shown.decode()


def shown_on(master: int) -> bytes:
    """Returns what processes write to a terminal until all have closed it, and closes it."""
    shown = b""
    # A read fails once no process has the terminal open.
    with os.fdopen(master, "rb", buffering=0) as terminal, suppress(OSError):
        while part := terminal.read(65_536):
            shown += part
    return shown
