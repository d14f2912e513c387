"""Settings of the process that serves a broker."""

from __future__ import annotations

import gc
import subprocess
import sys

PROGRAM = """
import gc
from rocketpy_broker import process

def told():
    return gc.get_threshold(), gc.get_freeze_count() > 0

before = told()
process.tune()
during = told()
process.leave_start_uncollected()
print(before, during, told(), sep="\\n")
"""


def test_a_start_collects_new_objects_only_and_what_it_made_is_never_visited() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, during, after = done.stdout.splitlines()
    assert before == str((gc.get_threshold(), False))
    assert during == str(((50_000, 10, 1_000_000), False))
    assert after == str((gc.get_threshold(), True))
