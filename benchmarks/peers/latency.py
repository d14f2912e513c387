"""Lines of single messages: the time to foreachBatch, triggers, and idle queries.

Kafka has no tuned column here: fetch sizes do not matter to one message.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.peers.connectors import Bench, Connector
from benchmarks.peers.rounds import MS, SHARE, Done, Line, Unit
from benchmarks.spark.bench_latency import BETWEEN_SECONDS, WARM_UP, trigger_ms

# Of a turn, beyond the first ones.
MESSAGES_A_SECOND = 6
# Of a query after its first message.
SETTLE_SECONDS = 5.0

Measured = Callable[[Bench, Connector, float], Done]


def lines(bench: Bench) -> Iterator[Line]:
    """Yields the lines."""
    kafka = bench.kafka()
    cases: tuple[tuple[str, Measured, Unit, float], ...] = (
        ("send to foreachBatch, p50", arrivals, MS, 1.0),
        ("trigger with one message, read and written, p50", triggers, MS, 0.83),
        ("idle query: JVM and Python", idle, SHARE, 1.0),
    )
    with bench.ours() as ours:
        for name, measured, unit, goal in cases:
            yield Line(
                name,
                partial(measured, bench, ours),
                partial(measured, bench, kafka),
                {"ours": ours.programs, "theirs": kafka.programs},
                unit=unit,
                goal=goal,
            )


def arrivals(bench: Bench, side: Connector, seconds_min: float) -> Done:
    """Returns the median time from the call that sends a message to its foreachBatch."""
    topic, arrived = side.new_topic(), list[float]()

    def arrive(frame: DataFrame, _batch_id: int) -> None:
        arrived.extend([time.monotonic()] * len(frame.collect()))

    writer = side.stream(topic).select(side.body).writeStream.foreachBatch(arrive)
    query = writer.option("checkpointLocation", bench.checkpoint()).start()
    sent = []
    with closing(side.sender(topic)) as sender:
        for number in range(WARM_UP + count(seconds_min)):
            sent.append(time.monotonic())
            sender.send()
            while len(arrived) <= number:
                time.sleep(0.001)
            time.sleep(BETWEEN_SECONDS)
    query.stop()
    times = [end - begin for begin, end in zip(sent, arrived, strict=True)][WARM_UP:]
    return Done(len(times), statistics.median(times))


def triggers(bench: Bench, side: Connector, seconds_min: float) -> Done:
    """Returns the median time of a trigger that reads and writes one message."""
    topic, target = side.new_topic(), side.new_topic()
    with closing(side.sender(topic)) as sender:
        for _ in range(WARM_UP + count(seconds_min)):
            sender.send()
    frame = side.stream(topic, {"maxOffsetsPerTrigger": "1"}).select(side.body)
    times = trigger_ms(side.sink(frame, target), Path(bench.checkpoint()))
    return Done(len(times), statistics.median(times) / 1000)


def idle(bench: Bench, side: Connector, seconds_min: float) -> Done:
    """Returns the processor time of JVM and Python a second of a query without messages."""
    topic = side.new_topic()
    writer = side.stream(topic).writeStream.format("noop")
    query = writer.option("checkpointLocation", bench.checkpoint()).start()
    with closing(side.sender(topic)) as sender:
        sender.send()
    query.processAllAvailable()
    time.sleep(SETTLE_SECONDS)
    before, began = side.programs.cpu(), time.monotonic()
    time.sleep(seconds_min)
    cpu, seconds = side.programs.cpu() - before, time.monotonic() - began
    query.stop()
    return Done(1, (cpu.jvm + cpu.python) / seconds)


def count(seconds_min: float) -> int:
    """Returns the number of messages of a turn."""
    return max(1, round(seconds_min * MESSAGES_A_SECOND))
