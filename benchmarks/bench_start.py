"""What our imports add to the start of Spark's Python processes, against a bare data source.

Each round starts four processes: a planner with a bare source and with ours, and a task of each
that reads ten rows. They import what Spark's own programs import, do their work once, and end.
All of them find their modules compiled, as an installation has them; the first round, which is not
counted, compiles them. Compared is the processor time of each process: waiting for a busy machine
is not ours.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from benchmarks.harness import Result
from rocketpy_broker import LocalBroker

ROUNDS = 15
ROWS = 10
TOPIC = "start"
# Of the bare source's start: ours may take so much.
RATIO_MAX = 1.1

SPARK = """
import sys
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
PROGRAMS = {
    ("planner", "bare"): SPARK + BARE + PLAN,
    ("planner", "ours"): SPARK + OURS + PLAN,
    ("task", "bare"): SPARK + BARE + PLAN + READ,
    ("task", "ours"): SPARK + OURS + PLAN + READ,
}


def processor_seconds(environment: Mapping[str, str], program: str, *arguments: str) -> float:
    """What a process takes from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def keeping_compiled(folder: str) -> dict[str, str]:
    """An environment whose processes keep what they compile in a folder."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def run() -> Iterator[Result]:
    """Planner and task."""
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder, LocalBroker() as broker:
        environment = keeping_compiled(folder)
        broker.create_topic(TOPIC, queues=1)
        for number in range(ROWS):
            broker.send(TOPIC, str(number))
        for number in range(ROUNDS + 1):
            for key, program in PROGRAMS.items():
                arguments = (broker.endpoint, TOPIC) if key[1] == "ours" else ()
                taken = processor_seconds(environment, program, *arguments)
                if number:
                    seconds[key].append(taken)
    for process in ("planner", "task"):
        bare, ours = seconds[process, "bare"], seconds[process, "ours"]
        ratio = statistics.median(one / other for one, other in zip(ours, bare, strict=True))
        detail = (
            f"{1000 * statistics.median(ours):.0f} ms of processor, "
            f"bare {1000 * statistics.median(bare):.0f}"
        )
        name = f"{process}'s start / with a bare source"
        yield Result(name, ratio, "ratio", RATIO_MAX, at_most=True, detail=detail)
