"""Memory of the broker with ten million messages, and of tasks that read and write.

A reading task is measured by the length of its range, a writing one with rows over a thousand
queues, against a task that drops the same Arrow batches.

The broker's figure is RssAnon of its process: resident memory without mapped files. The task's is
the peak resident memory (VmHWM) of a process that reads a range as an executor does; the figure of
`getrusage` for a forked process includes its parent's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.spark.bench_source import fill
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

TOPIC = "memory"
MESSAGES = 10_000_000
BODY_BYTES = 100
BROKER_MIB_MAX = 200.0
# A range ten times as long may take the same memory, plus some noise of the allocator.
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

TASK_MIB_MAX = 200.0
QUEUES = 1_000
# Body size in bytes -> Arrow batches and rows in each: more than a task buffers, but no more than
# one batch of Spark.
WRITTEN = {100: (100, 10_000), 1024: (30, 10_000), 100 << 10: (8, 500)}
WRITE_ROWS = """
import re, sys
from pathlib import Path
from benchmarks.data import sink_rows
from pyspark_rocketpy.sink.task_writer import WriteConfig, write_batches
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.transport import GrpcTransport
from pyspark_rocketpy.transport.values import (RetryPolicy)
from pyspark_rocketpy.transport.write_values import (BatchName)
endpoint, topic, queues, body_bytes, batches, rows = sys.argv[1:]
numbers = range(int(batches))
arrow_batches = (
    sink_rows(int(rows), int(body_bytes), int(queues), number) for number in numbers
)
if topic:
    transport = GrpcTransport(ClientConfig((endpoint,), 10_000), RetryPolicy(3, 100))
    config = WriteConfig(transport, topic, ("body", "queueId"), 2 << 20, 1)
    write_batches(config, arrow_batches, BatchName("writer", 1), 0)
else:
    for _ in arrow_batches:
        pass
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def anonymous_mib(pid: int) -> float:
    """Returns the resident memory of a process without mapped files."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def peak_mib(program: str, *arguments: object) -> float:
    """Returns the peak memory of a process with the program, which prints its own in KiB."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    return int(done.stdout) / 1024


def run() -> list[Result]:
    """Returns the results of the broker and reading tasks, then of writing tasks."""
    return [*run_reading(), run_writing()]


def run_writing() -> Result:
    """Returns the peak of tasks that write over many queues, less that of tasks that drop."""
    above = {}
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        for body_bytes, (batches, rows) in WRITTEN.items():
            shape = (QUEUES, body_bytes, batches, rows)
            writing = peak_mib(WRITE_ROWS, broker.endpoint, TOPIC, *shape)
            above[body_bytes] = writing - peak_mib(WRITE_ROWS, "", "", *shape)
    detail = ", ".join(f"{mib:.0f} MiB at {body_bytes} B" for body_bytes, mib in above.items())
    name = f"task memory, writing to {QUEUES:,} queues, above a discarding task"
    return Result(name, max(above.values()), "MiB", TASK_MIB_MAX, at_most=True, detail=detail)


def run_reading() -> list[Result]:
    """Returns the broker's memory, and a task's for a short and a ten times longer range."""
    with LocalBroker(flush=FlushDiskType.ASYNC_FLUSH, commit_log_segment_bytes=1 << 30) as broker:
        fill(broker, TOPIC, BODY_BYTES, MESSAGES)
        broker_mib = anonymous_mib(broker.pid)
        short, long = (
            peak_mib(READ_RANGE, broker.endpoint, TOPIC, times * SHORT_RANGE) for times in (1, 10)
        )
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
