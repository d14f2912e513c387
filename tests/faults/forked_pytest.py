"""Runs of pytest that are forked from a process with all imports done.

A run may have a fault of tests/faults/known_faults.py. `ForkedPytest` is the side of the tests. It
starts this module as a program, which reads a run per line and answers with its exit code. The
program ends with its input.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import known_faults, planted

TOP = Path(__file__).resolve().parent.parent.parent
LIBRARIES = (
    "grpc.aio",
    "grpc_health.v1.health_pb2_grpc",
    "grpc_reflection.v1alpha.reflection",
    "hypothesis.strategies",
    "isal.isal_zlib",
    "lark",
    "numpy",
    # PyArrow asks it about each list that it is given.
    "pandas",
    "pyarrow.compute",
    "pytest_asyncio",
    "pytest_timeout",
    "typer",
    "xdist.plugin",
)
OPTIONS = (
    *("-q", "-rf", "--tb=no"),
    *("-p", "no:randomly", "-p", "no:cacheprovider"),
    # Plugins are among the libraries; pytest need not rewrite their asserts.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
INTERNAL_ERROR = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code of a pytest run, and its output."""

    exit_code: int
    output: str


class ForkedPytest:
    """A starter of the program; `with` ends it."""

    def __enter__(self) -> ForkedPytest:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def run(
        self, tests: Sequence[str], folder: Path, timeout_seconds: int, fault_name: str = ""
    ) -> Outcome:
        """Runs these tests with the fault of that name; they may write into a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        options = f"--basetemp={folder / 'tests'}", f"--timeout={timeout_seconds}"
        arguments = [*OPTIONS, *options, *tests]
        order = {"arguments": arguments, "folder": str(folder), "fault": fault_name}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        exit_code = int(self._process.stdout.readline())
        return Outcome(exit_code, (folder / "output").read_text(encoding="utf-8"))


def serve() -> None:
    """Forks a run for each line."""
    for name in LIBRARIES:
        importlib.import_module(name)
    # Each run ends with garbage collections, which need not visit the libraries' objects.
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(order["arguments"], Path(order["folder"]), order["fault"])
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run(arguments: list[str], folder: Path, fault_name: str) -> None:
    """Runs pytest in this process; never returns."""
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    os.environ["COLUMNS"] = "1000"
    # Options of the outer run do not apply to these tests.
    os.environ.pop("PYTEST_ADDOPTS", None)
    exit_code = INTERNAL_ERROR
    try:
        for fault in known_faults.FAULTS:
            if fault.name == fault_name:
                planted.plant(fault)
        exit_code = pytest.main(arguments)
        sys.stdout.flush()
    finally:
        # No code of the parent program may run here.
        os._exit(exit_code)


if __name__ == "__main__":
    serve()
