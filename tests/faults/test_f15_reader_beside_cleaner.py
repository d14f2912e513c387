"""Reads while segments are added, removed, and truncated, in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.images import workshop

TOP = Path(__file__).parents[2]
ROUNDS_QUICK = 1600
ROUNDS_TORTURE = 200_000


@pytest.mark.parametrize(
    "rounds",
    [
        ROUNDS_QUICK,
        pytest.param(ROUNDS_TORTURE, marks=(pytest.mark.torture, pytest.mark.timeout(7200))),
    ],
)
def test_f15_what_was_read_stays_readable_and_what_was_removed_is_answered_so(rounds: int) -> None:
    with workshop() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.faults.reading_while",
            str(folder),
            str(rounds),
            "15",
        ]
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    # A negative code is the number of a signal.
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    for what in ("FOUND", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "rolled", "cleaned"):
        assert counts[what] >= rounds // 100, counts
    assert counts["checked"] >= rounds // 2
    assert counts["crashed"] == rounds // 400
