"""Runs of pytest that are forked from a process that has collected all tests.

A run may have a fault of tests/faults/planted_faults/known_faults.py. `ForkedPytest` is the side
of the tests. It starts this module as a program, which reads a run per line and answers with its
exit code. The program ends with its input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.planted_faults import known_faults, planted

TOP = Path(__file__).resolve().parents[3]
OPTIONS = (
    *("-q", "-rf", "--tb=no"),
    *("-p", "no:randomly", "-p", "no:cacheprovider"),
    # The outputs of processes go to the file of the run, with pytest's own.
    "--capture=sys",
)
INTERNAL_ERROR = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code of a pytest run, and its output."""

    exit_code: int
    output: str


class ForkedPytest:
    """A starter of the program with all tests; `with` ends it. They write into the folder."""

    def __init__(self, tests: Sequence[str], folder: Path, timeout_seconds: int) -> None:
        self._tests = [f"--timeout={timeout_seconds}", *tests]
        self._folder = folder

    def __enter__(self) -> ForkedPytest:
        command = [sys.executable, "-m", __name__, *self._tests]
        # Options of the outer run do not apply to these tests.
        kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        hypothesis = {"HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis")}
        self._process = subprocess.Popen(
            command,
            cwd=TOP,
            env={**kept, **hypothesis, "COLUMNS": "1000"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def run(self, tests: Sequence[str], folder: Path, fault_name: str = "") -> Outcome:
        """Runs some of the tests with the fault of that name; they may write into a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"tests": tests, "folder": str(folder), "fault": fault_name}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        exit_code = int(self._process.stdout.readline())
        return Outcome(exit_code, (folder / "output").read_text(encoding="utf-8"))


class Forks:
    """A plugin of pytest that runs the tests of each line in a fork, after the collection."""

    def __init__(self) -> None:
        self._answers = os.dup(1)
        self._orders = os.fdopen(os.dup(0))
        # pytest's own words, such as of a failed collection.
        os.dup2(2, 1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Ends the process at the end of its input; the forks go on, with their tests alone."""
        for line in self._orders:
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                prepare(session, order["tests"], Path(order["folder"]), order["fault"])
                return (yield)
            _, status = os.waitpid(pid, 0)
            os.write(self._answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)


def prepare(session: pytest.Session, tests: Sequence[str], folder: Path, fault_name: str) -> None:
    """Leaves the session these tests, in this order, and plants the fault."""
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    items = {item.nodeid: item for item in session.items}
    session.items = [items[test] for test in tests]
    for fault in known_faults.FAULTS:
        if fault.name == fault_name:
            planted.plant(fault)


def main(arguments: list[str]) -> None:
    """Collects the tests and serves; a fork comes here with its exit code, too."""
    exit_code = INTERNAL_ERROR
    try:
        exit_code = pytest.main([*OPTIONS, *arguments], plugins=[Forks()])
        sys.stdout.flush()
    finally:
        # No code of the parent program may run at the end of a fork.
        os._exit(exit_code)


if __name__ == "__main__":
    main(sys.argv[1:])
