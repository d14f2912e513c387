"""docker/rocketmq/serve.sh: it forwards SIGTERM to the scripts' processes and waits for them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docker.compose_files import FOLDER
from tests.support.time_limits import WAIT_SECONDS_MAX

SERVE = FOLDER / "rocketmq" / "serve.sh"
# Like RocketMQ's JVM: the child of two shells, which needs time to stop.
SERVER = """
import pathlib, signal, sys, time

def end(*_):
    time.sleep(1)
    pathlib.Path("saved").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
signal.alarm(60)  # Whatever becomes of the shells, it does not stay.
print("serving", flush=True)
signal.pause()
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """Returns the command of a script that runs a script that runs the server, without `exec`."""
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    scripts = {"outer": "sh inner\n", "inner": f"if true; then {sys.executable} server.py; fi\n"}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return ["sh", "outer"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_after_what_the_signal_ends(
    program: list[str], tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        ["bash", SERVE, *program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as serve:
        assert serve.stdout is not None
        assert serve.stdout.readline() == "serving\n"
        serve.send_signal(number)
        assert serve.wait(WAIT_SECONDS_MAX) == 128 + number
        assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_it_ends_as_its_program_ends(tmp_path: Path, code: int) -> None:
    command = ["bash", str(SERVE), "sh", "-c", f"exit {code}"]
    assert (
        subprocess.run(command, cwd=tmp_path, check=False, timeout=WAIT_SECONDS_MAX).returncode
        == code
    )
