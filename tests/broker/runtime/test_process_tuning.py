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
process_tuning.freeze_start_objects()
print(before, during, told(), sep="\\n")
"""


FREEZING = """
import gc
import weakref
from rocketpy_broker.runtime import process_tuning

process_tuning.tune()
process_tuning.freeze_start_objects()
used_bytes = 0
gc.callbacks[:] = [process_tuning.GcTuner(lambda: used_bytes)]

class Cycle:
    def __init__(self):
        self.itself = self

def left_by_a_collection():
    cycle = Cycle()
    gc.collect()
    return weakref.ref(cycle)

def freed(one):
    gc.collect()
    print(one() is None)

freed(left_by_a_collection())
process_tuning.FREEZE_SECONDS = -1
one = left_by_a_collection()
freed(one)
used_bytes += process_tuning.GROWTH_BYTES + 1
gc.collect()
freed(one)
most, kept = 0, []
for _ in range(300):
    kept += [[] for _ in range(1_000)]
    most = max(most, len(gc.get_objects()))
print(most)
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


def test_n12_full_collections_pass_over_many_old_objects_until_the_memory_has_grown() -> None:
    """Asserts which cycles are freed: left by short collections, or before the memory grew.

    Ten thousand held calls are a million objects: each collection held the loop for 500 ms. Objects
    that were all frozen for good took gigabytes.
    """
    after_short, after_long, after_growth, most = run(FREEZING)
    assert (after_short, after_long, after_growth) == ("True", "False", "True")
    assert int(most) < 60_000


def test_n12_the_memory_without_files_is_read() -> None:
    assert 10 << 20 < process_tuning.anonymous_bytes() < 16 << 30
