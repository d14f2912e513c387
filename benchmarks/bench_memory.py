"""Memory: the broker with ten million messages stored, and a task by the length of its range.

The broker's figure is RssAnon of its process: resident memory without mapped files. The task's is
the peak resident memory (VmHWM) of a process that reads a range as an executor does; what
`getrusage` tells of a process that was forked includes its parent's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.bench_source import fill
from benchmarks.harness import Result
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.flush import FlushDiskType

TOPIC = "memory"
MESSAGES = 10_000_000
BODY_BYTES = 100
BROKER_MIB_MAX = 200.0
# A range ten times as long may take as much memory, and some noise of the allocator.
GROWTH_MAX = 1.1
SHORT_RANGE = 400_000

READ_RANGE = """
import re, sys
from pathlib import Path
from pyspark_rocketpy import DefaultSource
endpoint, topic, end = sys.argv[1:]
offsets = '{"%s":{"0":%s,"1":%s}}' % (topic, end, end)
source = DefaultSource({"endpoints": endpoint, "topic": topic, "endingOffsets": offsets})
reader = source.reader(source.schema())
rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
assert rows == 2 * int(end), rows
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def anonymous_mib(pid: int) -> float:
    """Resident memory of a process without mapped files."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def peak_mib(broker: LocalBroker, rows: int) -> float:
    """Peak memory of a process that reads the first `rows` messages of each queue."""
    command = [sys.executable, "-c", READ_RANGE, broker.endpoint, TOPIC, str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    return int(done.stdout) / 1024


def run() -> list[Result]:
    """Broker after ten million messages; task memory for a short and a ten times longer range."""
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker:
        fill(broker, TOPIC, BODY_BYTES, MESSAGES)
        broker_mib = anonymous_mib(broker.pid)
        short, long = peak_mib(broker, SHORT_RANGE), peak_mib(broker, 10 * SHORT_RANGE)
        after_mib = anonymous_mib(broker.pid)
    return [
        Result(
            f"broker memory, {MESSAGES:,} messages",
            max(broker_mib, after_mib),
            "MiB",
            BROKER_MIB_MAX,
            at_most=True,
            detail=f"{after_mib:.0f} MiB after they were read",
        ),
        Result(
            "task memory, range ten times as long",
            long / short,
            "ratio",
            GROWTH_MAX,
            at_most=True,
            detail=f"{short:.0f} MiB for {2 * SHORT_RANGE:,} rows, {long:.0f} MiB for ten times",
        ),
    ]
