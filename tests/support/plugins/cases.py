"""The command that runs each test; `pytest -p <this module> --collect-only` lists them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

# The marks that exclude a case from `make test` are the names of the commands that run it.
ALONE = ("docs", "interop", "torture")
_BEGIN = "cases of tests: "


def pytest_collection_finish(session: pytest.Session) -> None:
    """Writes for each case of a test the command that runs it."""
    found: dict[str, str] = {}
    for item in session.items:
        marks = {mark.name for mark in item.iter_markers()}.intersection(ALONE)
        found[item.nodeid] = min(marks, default="test")
    sys.stdout.write(_BEGIN + json.dumps(found) + "\n")


def commands_of(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Returns, for each test in these files, the make targets that run a case of it."""
    return {name: sorted(set(commands)) for name, commands in _by_test(paths).items()}


def counts_of(paths: Iterable[Path]) -> dict[str, int]:
    """Returns the number of cases of each test in these files."""
    return {name: len(commands) for name, commands in _by_test(paths).items()}


def _by_test(paths: Iterable[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case, command in collected(paths).items():
        found.setdefault(case.partition("[")[0].rpartition("::")[2], []).append(command)
    return found


def collected(paths: Iterable[Path]) -> dict[str, str]:
    """Returns the make target that runs each case in these files and folders, by pytest's ids."""
    options = ["-p", __name__, "-p", "no:cacheprovider", "--collect-only", "-q"]
    command = [sys.executable, "-m", "pytest", *options, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_BEGIN)]
    assert len(lines) == 1, done.stdout + done.stderr
    found: dict[str, str] = json.loads(lines[0].removeprefix(_BEGIN))
    return found


def where(
    tests: Sequence[str], commands: Mapping[str, Sequence[str]], *, has_names: bool = True
) -> str:
    """Returns a table's words for the commands that run these tests.

    With `has_names` it names the tests that `make test` does not run.
    """
    quick = [test for test in tests if "test" in commands[test]]
    parts = ["`make test`"] if quick else []
    for command in ALONE:
        if any(command in commands[test] for test in quick):
            parts.append(f"more of it in `make {command}`")
        left_out = [f"`{test}`" for test in tests if [command] == [*commands[test]]]
        if left_out:
            names = f" alone: {', '.join(left_out)}" if has_names else ""
            parts.append(f"`make {command}`{names}")
    return "; ".join(parts)
