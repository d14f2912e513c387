"""A test that hangs past its limit: it fails, by name, and the run continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.plugins import hangs

TOP = Path(__file__).parents[3]
CASES = {
    # Like a loop that cancels its tasks and waits for one that does not end.
    "a test that takes its time-out for an answer": """
import threading
def test_that_hangs():
    try:
        threading.Event().wait()
    except BaseException:
        threading.Event().wait()
""",
    "a call that no signal interrupts": """
import signal, threading
def test_that_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()
""",
    "a fixture, behind a test that failed": """
import threading, pytest
@pytest.fixture
def waiting():
    yield
    threading.Event().wait()
def test_that_hangs(waiting):
    assert False
""",
}


@pytest.mark.parametrize("name", CASES)
def test_a_test_that_hangs_is_named_and_others_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(CASES[name])
    (tmp_path / "test_other.py").write_text("def test_another(): pass\n")
    plugins = ["-p", hangs.__name__, "-p", "no:cacheprovider", "-p", "no:randomly"]
    options = [*plugins, "--timeout", "1"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, *options, str(tmp_path)]
    # pytest options of the outer run do not apply to the inner one.
    environment = {**os.environ, "PYTHONPATH": str(TOP), "PYTEST_ADDOPTS": ""}
    environment["ROCKETPY_HANGS_GRACE_S"] = "3"
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "--numprocesses", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "crashed while running 'test_it.py::test_that_hangs'" in done.stdout
    assert "1 passed" in done.stdout
    assert "test_it.py" in done.stderr
    assert "in test_that_hangs" in done.stderr or "in waiting" in done.stderr
