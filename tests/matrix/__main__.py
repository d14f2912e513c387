"""`make test-matrix`: runs the cells one after the other and prints their results.

    python -m tests.matrix [--cells NAME,...] [--pythons PROGRAM,...] [-- pytest's arguments]
    python -m tests.matrix --page     puts the last results into docs/compatibility.md

A cell without an interpreter is reported and left out. That fails the run with CI=true, and if the
cell was requested by name.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from tests.matrix import environments, interpreters, results
from tests.matrix.cells import CELLS, REFUSED, Cell
from tests.matrix.results import TOP, Counts, Result
from tests.skips import is_ci

# As `make test` does: Spark's tests share a session; the other tests mostly wait.
PYTEST = ("-m", "pytest", "-q", "-m", "not torture and not interop", "--numprocesses", "3")
BY_GROUP = ("--dist", "loadgroup")


def run(cell: Cell, interpreter: Path, arguments: Sequence[str]) -> Result:
    """Makes the cell's environment and runs its tests in it."""
    try:
        python = environments.make(cell, interpreter)
    except subprocess.CalledProcessError as error:
        return Result(_today(), why_not=f"pip ended with {error.returncode}")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
    found = environments.versions(python)
    if cell.suite == REFUSED:
        done = subprocess.run([python, *cell.tests[:1]], cwd=TOP, env=environment, check=False)
        passed = int(done.returncode == 0)
        return Result(_today(), found, passed=passed, failed=1 - passed)
    report = TOP / "build" / "matrix" / f"{cell.name}.xml"
    report.unlink(missing_ok=True)
    words = [*PYTEST, *BY_GROUP, f"--junit-xml={report}", *cell.tests, *arguments]
    done = subprocess.run([python, *words], cwd=TOP, env=environment, check=False)
    counts = Counts.of(report)
    ended_well = not done.returncode or counts.failed
    why_not = "" if ended_well else f"pytest ended with {done.returncode}"
    return Result(_today(), found, counts.passed, counts.failed, counts.skipped, why_not)


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


def chosen(names: str) -> list[Cell]:
    """Returns the cells of these names, or all if none is given. Exits on an unknown name."""
    by_name = {cell.name: cell for cell in CELLS}
    wanted = _listed(names) or list(by_name)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        sys.exit(f"matrix: no cell {unknown[0]!r}; there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


def _listed(text: str) -> list[str]:
    return [name for name in text.replace(",", " ").split() if name]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--cells", default="", help="names of cells to run; all by default")
    parser.add_argument("--pythons", default="", help="interpreters, looked at before the PATH's")
    parser.add_argument("--page", action="store_true", help="write docs/compatibility.md's table")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    return parser.parse_args(words)


def run_all(cells: Sequence[Cell], told: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Runs cells and saves each result at once; returns the names of the failed cells."""
    failed = []
    for cell in cells:
        _say(f"matrix: {cell.name}")
        interpreter = interpreters.find(cell.python, told)
        if interpreter is None:
            _say(f"matrix: no Python {cell.python} that can make environments; left out")
            result = Result(_today(), why_not=f"no Python {cell.python}")
        else:
            result = run(cell, interpreter, arguments)
        results.save({**results.load(), cell.name: result})
        is_left_out = interpreter is None and len(cells) == len(CELLS) and not is_ci()
        if not result.is_good and not is_left_out:
            failed.append(cell.name)
    return failed


def main(words: Sequence[str]) -> None:
    """Runs the cells, prints the table and exits with 1 if a cell failed."""
    # A shell's background jobs start with SIGINT ignored; their tests' programs would ignore it
    # too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told = _parsed(words)
    if told.page:
        try:
            results.write_page(results.load())
        except (ValueError, OSError) as error:
            sys.exit(f"matrix: {error}")
        return
    failed = run_all(chosen(told.cells), _listed(told.pythons), told.pytest)
    _say(results.table(results.load()))
    if failed:
        sys.exit(f"matrix: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
