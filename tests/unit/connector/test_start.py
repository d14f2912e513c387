"""Imports of Spark's new Python processes: only the modules of ours that they use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from rocketpy_broker import LocalBroker

PLAN = """
import sys
from pyspark_rocketpy import DefaultSource
endpoint, topic = sys.argv[1:]
options = {"endpoints": endpoint, "topic": topic, "startingOffsets": "earliest"}
source = DefaultSource(options)
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
partitions = reader.partitions(start, end)
"""
# Work of Spark's other processes: one of `load()` checks options, and one of each query pickles its
# reader for the tasks.
TRAVEL = """
import pickle, sys
from pyspark_rocketpy import DefaultSource
source = DefaultSource({"endpoints": "broker:1", "topic": "T"})
for reader in source.streamReader(source.schema()), source.reader(source.schema()):
    pickle.loads(pickle.dumps(reader))
"""
# A gRPC channel to a broker, and nothing else.
LIBRARIES = """
import sys
import grpc
import pyarrow
import pyspark.sql.datasource, pyspark.sql.pandas.types, pyspark.sql.streaming.datasource
from rocketpy_proto.rocketpy.v1 import admin_pb2_grpc
grpc.insecure_channel("localhost:1").close()
"""
READ = """
assert sum(batch.num_rows for part in partitions for batch in reader.read(part)) == 1
"""
TELL = """
print("\\n".join(sys.modules))
"""
# Limits for modules of ours, packages among them: each costs a new process half a millisecond.
PLANNER_MODULES_MAX, TASK_MODULES_MAX = 62, 88
OURS = ("pyspark_rocketpy", "rocketpy_proto")
OF_WRITERS = {
    "pyspark_rocketpy.sink",
    "pyspark_rocketpy.retry",
    "pyspark_rocketpy.options.retry_options",
    "pyspark_rocketpy.transport.write_values",
    "pyspark_rocketpy.transport.grpc_v1.transport",
    "pyspark_rocketpy.transport.grpc_v1.send.block_writer",
    "pyspark_rocketpy.transport.grpc_v1.send.batches",
    "rocketpy_proto.rocketpy.v1.groups_pb2",
    "rocketpy_proto.rocketpy.v1.retry_pb2",
    "rocketpy_proto.rocketpy.v1.transactions_pb2",
    "rocketpy_broker",
}
# Spark's own programs do not need it either; pyarrow imports it to convert many values.
OF_NOBODY = {"pandas"}
# The table of functions alone has 300 Python functions, created at its import.
OF_TASKS = {
    "pyarrow.compute",
    "rocketpy_proto.pull_wire",
    "rocketpy_proto.record",
    "pyspark_rocketpy.source.range_reader",
    "pyspark_rocketpy.source.message_filter",
    "pyspark_rocketpy.source.pushdown",
    "pyspark_rocketpy.transport.grpc_v1.range_puller",
}


def modules_of(program: str, *arguments: str) -> set[str]:
    """Returns the modules that a new process has imported at its end."""
    command = [sys.executable, "-c", program + TELL, *arguments]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(told.splitlines())


def of_ours(modules: Iterable[str]) -> set[str]:
    return {module for module in modules if module.startswith(OURS)}


@pytest.mark.parametrize(
    ("process", "program", "unwanted", "modules_max"),
    [
        ("planner", PLAN, OF_NOBODY | OF_WRITERS | OF_TASKS, PLANNER_MODULES_MAX),
        ("task", PLAN + READ, OF_NOBODY | OF_WRITERS, TASK_MODULES_MAX),
    ],
)
def test_a_new_process_imports_what_it_uses(
    rocketpy_broker: LocalBroker, process: str, program: str, unwanted: set[str], modules_max: int
) -> None:
    topic = f"start-of-a-{process}"
    rocketpy_broker.create_topic(topic, queues=1)
    rocketpy_broker.send(topic, "1")
    modules = modules_of(program, rocketpy_broker.endpoint, topic)
    assert unwanted & modules == set()
    assert len(of_ours(modules)) <= modules_max


def test_a_planner_imports_nothing_beside_its_libraries_and_ours(
    rocketpy_broker: LocalBroker,
) -> None:
    rocketpy_broker.create_topic("libraries", queues=1)
    modules = modules_of(PLAN, rocketpy_broker.endpoint, "libraries")
    beside = modules - modules_of(LIBRARIES)
    assert beside == of_ours(beside)


def test_a_process_that_makes_no_call_imports_no_grpc() -> None:
    assert {"grpc", "google.protobuf", "asyncio"} & modules_of(TRAVEL) == set()
