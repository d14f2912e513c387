"""What Spark's new Python processes import of ours: what they use on their way, and no more."""

from __future__ import annotations

import subprocess
import sys

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
READ = """
assert sum(batch.num_rows for part in partitions for batch in reader.read(part)) == 1
"""
TELL = """
print("\\n".join(sys.modules))
"""
OF_WRITERS = {
    "pyspark_rocketpy.sink",
    "pyspark_rocketpy.retry",
    "pyspark_rocketpy.options.retrying",
    "pyspark_rocketpy.transport.writing_values",
    "pyspark_rocketpy.transport.grpc_v1.transport",
    "pyspark_rocketpy.transport.grpc_v1.writing",
    "pyspark_rocketpy.transport.grpc_v1.batches",
    "rocketpy_proto.rocketpy.v1.groups_pb2",
    "rocketpy_proto.rocketpy.v1.transactions_pb2",
    "rocketpy_broker",
}
# What Spark's own programs do without as well, and pyarrow imports for many a value.
OF_NOBODY = {"pandas"}
# The table of functions alone is 300 Python functions, made at its import.
OF_TASKS = {
    "pyarrow.compute",
    "rocketpy_proto.record",
    "pyspark_rocketpy.source.reading",
    "pyspark_rocketpy.source.message_filter",
}


@pytest.mark.parametrize(
    ("process", "program", "unwanted"),
    [
        ("planner", PLAN, OF_NOBODY | OF_WRITERS | OF_TASKS),
        ("task", PLAN + READ, OF_NOBODY | OF_WRITERS),
    ],
)
def test_a_new_process_imports_what_it_uses(
    rocketpy_broker: LocalBroker, process: str, program: str, unwanted: set[str]
) -> None:
    topic = f"start-of-a-{process}"
    rocketpy_broker.create_topic(topic, queues=1)
    rocketpy_broker.send(topic, "1")
    command = [sys.executable, "-c", program + TELL, rocketpy_broker.endpoint, topic]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert unwanted & set(told.splitlines()) == set()
