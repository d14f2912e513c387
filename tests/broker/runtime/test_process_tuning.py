"""Settings of the process that serves a broker."""

from __future__ import annotations

import gc
import subprocess
import sys

from rocketpy_broker.runtime import process_tuning

PROGRAM = """
import gc
from rocketpy_broker.runtime import process_tuning

def told():
    return gc.get_threshold(), gc.get_freeze_count() > 0

before = told()
process_tuning.tune()
during = told()
process_tuning.leave_start_uncollected()
print(before, during, told(), sep="\\n")
"""


SURVIVORS = """
import gc
import weakref
from rocketpy_broker.runtime import process_tuning

process_tuning.tune()
process_tuning.leave_start_uncollected()
most, kept = 0, []
for _ in range(300):
    kept += [[] for _ in range(1_000)]
    most = max(most, len(gc.get_objects()))
print(most)

class Cycle:
    def __init__(self):
        self.itself = self

process_tuning.PASSED_OVER_MORE = 0
cycle, collections = Cycle(), 0
alive = weakref.ref(cycle)
gc.collect()
del cycle
while alive() is not None:
    gc.collect()
    collections += 1
print(1 < collections <= process_tuning.LOOK_EACH + 1)
"""


def run(program: str) -> list[str]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_start_collects_new_objects_only_and_what_it_made_is_never_visited() -> None:
    before, during, after = run(PROGRAM)
    assert before == str((gc.get_threshold(), False))
    assert during == str(((50_000, 10, 1_000_000), False))
    assert after == str((process_tuning.THRESHOLDS, True))


def test_n12_a_full_collection_visits_what_is_new_and_seldom_all_that_is_there() -> None:
    """Asserts that full collections seldom visit old objects.

    Ten thousand held calls are a million objects: each collection held the loop for 500 ms.
    """
    most, found = run(SURVIVORS)
    assert int(most) < 60_000
    assert found == "True"
