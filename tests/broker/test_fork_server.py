"""Forked programs, which have the state of a started process."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest

from tests.support.broker.fork_server import ForkedProcess, ForkServer
from tests.support.broker.shell import ROCKETPY, shown_on
from tests.support.time_limits import WAIT_SECONDS_MAX

PROGRAM = "tests.broker.start_state"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        # A forked program's streams are buffered in any case.
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        with closing(ForkServer()) as running:
            yield running


def started(_: ForkServer, *words: str, **options: Any) -> Popen[Any]:
    return Popen([sys.executable, "-m", PROGRAM, *words], **options)


def forked(server: ForkServer, *words: str, **options: Any) -> Popen[Any]:
    return ForkedProcess(server, [PROGRAM, *words], **options)


@pytest.mark.parametrize("text", ["", "0", "3", "300", "said\r\n"])
def test_state_and_end_are_those_of_a_start(server: ForkServer, text: str, tmp_path: Path) -> None:
    env = {**os.environ, "TZ": "Asia/Kolkata", "ROCKETPY_ENDPOINT": "h:1", "NAME": "\udcff"}
    ends = []
    for start in (started, forked):
        words = ("-x", "\udcff")
        with start(
            server, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, env=env
        ) as process:
            ends.append((*process.communicate(text, WAIT_SECONDS_MAX), process.returncode))
    assert ends[0] == ends[1]
    state, *rest = ends[0][0].splitlines()
    assert json.loads(state)["environment"]["NAME"] == "\udcff"
    assert rest == ["thread", "at exit"]


def test_an_interrupt_ends_it_by_the_signal(server: ForkServer) -> None:
    for start in (started, forked):
        with start(server, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, text=True) as process:
            _, errors = process.communicate("interrupt\n")
        assert (process.returncode, errors.splitlines()[-1]) == (
            -signal.SIGINT,
            "KeyboardInterrupt",
        )


def test_output_that_cannot_be_written_ends_it_as_a_start_s(server: ForkServer) -> None:
    ends = []
    for start in (started, forked):
        with (
            Path("/dev/full").open("w") as full,
            start(server, stdin=DEVNULL, stdout=full, stderr=PIPE, text=True) as process,
        ):
            ends.append((*process.communicate(), process.returncode))
    assert ends[0] == ends[1]
    assert ends[0][2] == 120


def test_streams_on_a_terminal_are_those_of_a_start(server: ForkServer) -> None:
    shown = []
    for start in (started, forked):
        master, terminal = pty.openpty()
        options = {"stdin": DEVNULL, "stdout": terminal, "stderr": terminal}
        with start(server, env=dict(os.environ), **options):
            os.close(terminal)
            shown.append(shown_on(master))
    assert shown[0] == shown[1]


def test_directory_and_session_are_given(server: ForkServer, tmp_path: Path) -> None:
    with forked(
        server, stdin=DEVNULL, stdout=PIPE, cwd=tmp_path, start_new_session=True
    ) as process:
        state = json.loads(process.stdout.readline())  # type: ignore[union-attr]
    assert (state["directory"], state["session"]) == (str(tmp_path), process.pid)


@pytest.mark.parametrize(
    ("command", "names", "is_forked"),
    [
        ([*ROCKETPY, "--help"], {"COLUMNS": "1", "GRPC_VERBOSITY": "ERROR"}, True),
        ([*ROCKETPY, "--help"], {"PYTHONPATH": "/nowhere"}, False),
        ([sys.executable, "-c", "pass"], {}, False),
        (["true"], {}, False),
    ],
)
def test_programs_of_this_project_are_forked(
    server: ForkServer, command: list[str], names: dict[str, str], *, is_forked: bool
) -> None:
    with server.start(command, env={**os.environ, **names}, stdout=DEVNULL) as process:
        assert isinstance(process, ForkedProcess) is is_forked
        assert process.wait(WAIT_SECONDS_MAX) == 0
