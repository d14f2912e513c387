"""Memory of the counter table: rows that were never in use take none."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from rocketpy_broker.services.observability.counters.table import CounterTable

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

before = resident_bytes()
kept = []
for _ in range(6):
    tables = [CounterTable() for _ in range(3)]
    for number in range(1_000):
        tables[0].add(("SUM", str(number)), 1)
    # The process keeps the memory of freed tables below this block.
    kept.append(b"x" * 100_000)
    del tables
print(resident_bytes() - before)
"""


def test_s13_rows_that_were_never_in_use_take_no_memory_after_former_tables() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    # A table has 130 MB of rows, a thousand rows have 1.3 MB.
    assert int(done.stdout) < 8 << 20
