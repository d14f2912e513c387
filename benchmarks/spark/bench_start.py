"""The imports' share of the start of Spark's Python processes, against a bare data source.

Each round starts four processes: a planner with a bare source and with ours, and a task of each
that reads ten rows. They import what Spark's own programs import, do their work, do it again, and
end. The second pass has a figure of its own: Spark keeps a query's planner, and uses workers for
one task after the other.

All processes find their modules compiled, as in an installation; the first round, which is not
counted, compiles them. They end as Spark ends its processes, without the interpreter's shutdown.
The figure is each process's processor time: waits on a busy machine do not count.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from benchmarks.harness import Result
from rocketpy_broker import LocalBroker

ROUNDS = 15
ROWS = 10
TOPIC = "start"
# Our start as a multiple of the bare source's.
RATIO_MAX = 1.1

SPARK = """
import os, pickle, sys, time
import pyspark.worker
import pyspark.sql.streaming.python_streaming_source_runner
import pyspark.sql.worker.create_data_source
import pyspark.sql.worker.plan_data_source_read
"""
BARE = """
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
class Reader(DataSourceStreamReader):
    def initialOffset(self): return {"offset": 0}
    def latestOffset(self, start, limit): return {"offset": 10}
    def partitions(self, start, end): return [InputPartition(0)]
    def read(self, partition): yield pa.RecordBatch.from_arrays([pa.array([b"x"] * 10)], ["body"])
class Source(DataSource):
    @classmethod
    def name(cls): return "bare"
    def schema(self): return "body binary"
    def streamReader(self, schema): return Reader()
source = Source({})
"""
OURS = """
from pyspark_rocketpy import DefaultSource
endpoint, topic = sys.argv[1:]
source = DefaultSource({"endpoints": endpoint, "topic": topic, "startingOffsets": "earliest"})
"""
PLAN = """
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, getattr(reader, "getDefaultReadLimit", lambda: None)())
partitions = reader.partitions(start, end)
"""
READ = """
assert sum(batch.num_rows for part in partitions for batch in reader.read(part)) == 10
"""
# A planner receives the next batch's start, and a task its reader.
AGAIN = """
travelling, before = pickle.dumps(reader), time.process_time()
"""
TOLD = """
print(time.process_time() - before, flush=True)
os._exit(0)
"""
PLAN_AGAIN = AGAIN + PLAN.replace("reader = source.streamReader(source.schema())\n", "") + TOLD
READ_AGAIN = AGAIN + "reader = pickle.loads(travelling)" + READ + TOLD
PROGRAMS = {
    ("planner", "bare"): SPARK + BARE + PLAN + PLAN_AGAIN,
    ("planner", "ours"): SPARK + OURS + PLAN + PLAN_AGAIN,
    ("task", "bare"): SPARK + BARE + PLAN + READ + READ_AGAIN,
    ("task", "ours"): SPARK + OURS + PLAN + READ + READ_AGAIN,
}


class Taken(NamedTuple):
    """Processor seconds: of a process with its first batch, and of the batch after it."""

    first: float
    again: float


def processor_seconds(environment: Mapping[str, str], program: str, *arguments: str) -> Taken:
    """Returns a process's processor time from its start to the end of its work."""
    command = [sys.executable, "-c", program, *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    again = float(told.stdout)
    return Taken(whole - again, again)


def keeping_compiled(folder: str) -> dict[str, str]:
    """Returns an environment that keeps compiled modules in a folder."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def median_ms(seconds: Iterable[float]) -> float:
    """Returns the median, in ms."""
    return 1000 * statistics.median(seconds)


def run() -> Iterator[Result]:
    """Yields planner and task."""
    taken: dict[tuple[str, str], list[Taken]] = {key: [] for key in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder, LocalBroker() as broker:
        environment = keeping_compiled(folder)
        broker.create_topic(TOPIC, queues=1)
        for number in range(ROWS):
            broker.send(TOPIC, str(number))
        for number in range(ROUNDS + 1):
            for key, program in PROGRAMS.items():
                arguments = (broker.endpoint, TOPIC) if key[1] == "ours" else ()
                one = processor_seconds(environment, program, *arguments)
                if number:
                    taken[key].append(one)
    for process in ("planner", "task"):
        bare, ours = taken[process, "bare"], taken[process, "ours"]
        pairs = zip(ours, bare, strict=True)
        ratio = statistics.median(one.first / other.first for one, other in pairs)
        detail = (
            f"{median_ms(one.first for one in ours):.0f} ms of processor, "
            f"bare {median_ms(one.first for one in bare):.0f}; "
            f"the next batch {median_ms(one.again for one in ours):.1f} ms, "
            f"bare {median_ms(one.again for one in bare):.1f}"
        )
        name = f"{process}'s start / with a bare source"
        yield Result(name, ratio, "ratio", RATIO_MAX, at_most=True, detail=detail)
