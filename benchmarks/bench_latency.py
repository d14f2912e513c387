"""The latency of a single message: the trigger, foreachBatch, and idle queries.

local[2], the broker on the same machine. A trigger with one message, read and written by our
connector, is compared with one of a bare Python source and sink.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from benchmarks import data
from benchmarks.harness import Result
from benchmarks.spark_session import spark_session
from pyspark_rocketpy import DefaultSource
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

QUEUES = 2
TRIGGERS = 60
# The first batches start workers.
WARM_UP = 10
WAKE_UPS = 200
MESSAGES = 60
BETWEEN_SECONDS = 0.3
IDLE_SECONDS = 20.0
GOAL_TRIGGER, GOAL_WAKE_UP_MS, GOAL_IDLE_PERCENT = 1.25, 20, 2
_numbers = itertools.count()


class Sender:
    """A sender of single messages to one queue."""

    def __init__(self, broker: LocalBroker, topic: str) -> None:
        self._channel = grpc.insecure_channel(broker.endpoint)
        self._stub = broker_pb2_grpc.BrokerStub(self._channel)
        block = data.block(1, 100, topic)
        self._request = broker_pb2.AppendRequest(
            topic=topic, queue_id=0, records=block.records, record_sizes=block.record_sizes
        )

    def send(self) -> float:
        """Sends one; returns its time, in seconds of this machine's monotonic clock."""
        began = time.monotonic()
        (response,) = self._stub.Append(iter([self._request]))
        if response.status.code:
            raise RuntimeError(response.status.remark)
        return began

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()


def new_topic(broker: LocalBroker) -> str:
    """Creates a topic and returns its name."""
    name = f"latency-{next(_numbers)}"
    broker.create_topic(name, queues=QUEUES)
    return name


def reader_of(spark: SparkSession, broker: LocalBroker, topic: str) -> DataStreamReader:
    """Returns the source with its defaults."""
    reader = spark.readStream.format("rocketpy").option("endpoints", broker.endpoint)
    return reader.option("topic", topic).option("startingOffsets", "earliest")


def trigger_ms(writer: DataStreamWriter, checkpoint: Path) -> list[int]:
    """Returns the milliseconds of each one-row trigger, after the first few."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    progress: list[Any] = list(query.recentProgress)
    times = [one.durationMs["triggerExecution"] for one in progress if one.numInputRows == 1]
    return times[WARM_UP:]


def run_triggers(spark: SparkSession, broker: LocalBroker, folder: Path) -> Result:
    """Returns the median over turns of the ratio of medians, ours against the bare one."""
    ours, bare = [], []
    for _ in range(3):
        topic, target = new_topic(broker), new_topic(broker)
        sender = Sender(broker, topic)
        for _ in range(TRIGGERS):
            sender.send()
        sender.close()
        frame = reader_of(spark, broker, topic).option("maxOffsetsPerTrigger", 1).load()
        sink = frame.select("body").writeStream.format("rocketpy")
        sink = sink.option("endpoints", broker.endpoint).option("topic", target)
        ours.append(statistics.median(trigger_ms(sink, folder / f"c{next(_numbers)}")))
        synthetic = spark.readStream.format("synthetic").schema("body binary")
        nothing = synthetic.option("oneByOne", TRIGGERS).load().writeStream.format("synthetic")
        bare.append(statistics.median(trigger_ms(nothing, folder / f"c{next(_numbers)}")))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, bare, strict=True))
    detail = f"{statistics.median(ours):.0f} ms, bare {statistics.median(bare):.0f} ms"
    name = "trigger with one message / bare Python source and sink"
    return Result(name, ratio, "ratio", GOAL_TRIGGER, at_most=True, detail=detail)


def run_wake_ups(broker: LocalBroker) -> Result:
    """Returns the delay from a send to the latestOffset call that reports it.

    Spark calls latestOffset repeatedly; a call is held only if the one before found nothing.
    """
    topic = new_topic(broker)
    source = DefaultSource({"endpoints": broker.endpoint, "topic": topic, "pollTimeout": "10s"})
    reader = source.streamReader(source.schema())
    limit = reader.getDefaultReadLimit()
    sender = Sender(broker, topic)
    offset, times = reader.initialOffset(), []
    for _ in range(WAKE_UPS):
        sent: list[float] = []
        timer = threading.Timer(0.02, lambda sent=sent: sent.append(sender.send()))
        timer.start()
        while (latest := reader.latestOffset(offset, limit)) == offset:
            pass
        offset, woke = latest, time.monotonic()
        timer.join()
        times.append((woke - sent[0]) * 1000)
    sender.close()
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    detail = f"p50 {p50:.1f} ms, {WAKE_UPS} messages"
    name = "a message ends the wait of an idle query, p99"
    return Result(name, p99, "ms", GOAL_WAKE_UP_MS, at_most=True, detail=detail)


def run_latency(spark: SparkSession, broker: LocalBroker, folder: Path) -> list[Result]:
    """Returns the delay from a send to its foreachBatch, and the cost of an idle query."""
    topic = new_topic(broker)
    sender = Sender(broker, topic)
    arrived: list[float] = []

    def arrive(frame: DataFrame, _batch_id: int) -> None:
        arrived.extend([time.monotonic()] * len(frame.collect()))

    writer = reader_of(spark, broker, topic).load().select("body").writeStream.foreachBatch(arrive)
    query = writer.option("checkpointLocation", str(folder / f"c{next(_numbers)}")).start()
    sent = []
    for number in range(WARM_UP + MESSAGES):
        sent.append(sender.send())
        while len(arrived) <= number:
            time.sleep(0.001)
        time.sleep(BETWEEN_SECONDS)
    times = [(end - begin) * 1000 for begin, end in zip(sent, arrived, strict=True)][WARM_UP:]
    percent = idle_percent()
    query.stop()
    sender.close()
    detail = f"{MESSAGES} single messages"
    return [
        Result("send to foreachBatch, p50", statistics.median(times), "ms", 0, detail=detail),
        Result("send to foreachBatch, p99", statistics.quantiles(times, n=100)[98], "ms", 0),
        Result(
            "idle query, share of a core",
            percent,
            "%",
            GOAL_IDLE_PERCENT,
            at_most=True,
            detail=f"Spark and its Python workers, over {IDLE_SECONDS:.0f} s",
        ),
    ]


def idle_percent() -> float:
    """Returns the processor time of the children but the broker, in % while no messages come."""

    def cpu_seconds() -> dict[int, float]:
        found = dict[int, float]()
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # It ends just now.
                if "rocketpy_broker" not in " ".join(child.cmdline()):
                    found[child.pid] = sum(child.cpu_times()[:2])
        return found

    begin = cpu_seconds()
    time.sleep(IDLE_SECONDS)
    # Spark ends idle workers, and a worker's last second is lost here.
    used = sum(seconds - begin.get(pid, 0) for pid, seconds in cpu_seconds().items())
    return used / IDLE_SECONDS * 100


def run() -> list[Result]:
    """Returns triggers, wake-ups, latency and idle cost."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        LocalBroker(flush=FlushDiskType.SYNC_FLUSH) as broker,
        spark_session() as spark,
    ):
        folder = Path(name)
        triggers = run_triggers(spark, broker, folder)
        return [triggers, run_wake_ups(broker), *run_latency(spark, broker, folder)]
