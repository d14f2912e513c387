"""Processes of `copying_driver`: a test starts one, kills it with its workers, checks its work."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import psutil
from pyspark.sql import Row, SparkSession

from tests.spark.conftest import Topic
from tests.support.spark.copying_driver import Copying, start
from tests.support.time_limits import WAIT_SECONDS_MAX

TOP = Path(__file__).parents[3]
END_SECONDS_MAX = WAIT_SECONDS_MAX
ALL_ROWS = 1 << 20


class Driver:
    """A driver process; its output goes to a file beside the first checkpoint."""

    def __init__(self, *copyings: Copying) -> None:
        self._log = Path(copyings[0].checkpoint + ".log")
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        copies = json.dumps([asdict(copying) for copying in copyings])
        command = [sys.executable, "-m", "tests.support.spark.copying_driver", copies]
        with self._log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                command, cwd=TOP, env=environment, stdout=log, stderr=log
            )

    def log_text(self) -> str:
        """Returns the output so far."""
        return self._log.read_text(encoding="utf-8")

    def check_running(self) -> None:
        """Asserts that the driver has not ended, as it does when a query fails."""
        assert self._process.poll() is None, self.log_text()[-3000:]

    def kill(self) -> None:
        """Kills the driver and all its child processes."""
        kill_with_children(self._process)

    def wait(self) -> None:
        """Waits until the driver has ended by itself."""
        try:
            code = self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver did not end: {self.log_text()[-3000:]}") from None
        assert code == 0, self.log_text()[-3000:]


@contextmanager
def driver(*copyings: Copying) -> Iterator[Driver]:
    """Yields a driver of these copies that does not outlive the block."""
    started = Driver(*copyings)
    try:
        yield started
    finally:
        started.kill()


def finish(spark: SparkSession, *copyings: Copying) -> None:
    """Copies the remaining messages, one copy after the other, with the driver of the tests.

    A killed driver's batch is repeated as it was; all that is left is another batch.
    """
    for copying in copyings:
        query = start(spark, replace(copying, available_now=True, batch_rows=ALL_ROWS))
        assert query.awaitTermination(END_SECONDS_MAX), "the copy did not end"


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all its child processes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(started, timeout=END_SECONDS_MAX)
    process.wait()


def send_numbered(topic: Topic, count: int) -> list[str]:
    """Sends `count` different messages to the topic's two queues; returns their bodies, sorted."""
    for queue_id in (0, 1):
        topic.send(*numbered(queue_id, count // 2), queue_id=queue_id)
    return sorted(numbered(0, count // 2) + numbered(1, count // 2))


def numbered(queue_id: int, count: int) -> list[str]:
    """Returns bodies that contain their queue and their place."""
    return [f"{queue_id}-{number:06d}" for number in range(count)]


def send_numbered_to_each(topics: list[Topic], count: int) -> list[list[str]]:
    """Sends as `send_numbered` to each topic, in one write; bodies contain their topic too."""
    rows = [
        (topic.name, queue_id, f"{topic.name}-{body}")
        for topic in topics
        for queue_id in (0, 1)
        for body in numbered(queue_id, count // 2)
    ]
    frame = topics[0].spark.createDataFrame(rows, "topic string, queueId int, body string")
    topics[0].write(frame.coalesce(1), topic=None)
    return [sorted(body for name, _, body in rows if name == topic.name) for topic in topics]


def check_copied(source: Topic, target: Topic, sent: list[str]) -> None:
    """Asserts that no row is lost or duplicated, and that each queue keeps its order."""
    check_exact(target.read().select("queueId", "queueOffset", "body").collect(), sent)


def check_each_copied(targets: list[Topic], sent: list[list[str]]) -> None:
    """Checks each target as `check_copied` does, in one read."""
    every = targets[0].read(topic=None, topics=",".join(target.name for target in targets))
    rows = every.select("topic", "queueId", "queueOffset", "body").collect()
    for target, bodies in zip(targets, sent, strict=True):
        check_exact([row for row in rows if row.topic == target.name], bodies)


def check_exact(rows: list[Row], sent: list[str]) -> None:
    """Asserts that one topic's rows are all that was sent, once, in the order of each queue."""
    assert sorted(row.body.decode() for row in rows) == sent
    for queue_id in {row.queueId for row in rows}:
        queue = sorted((row.queueOffset, row.body) for row in rows if row.queueId == queue_id)
        assert [offset for offset, _ in queue] == list(range(len(queue)))
        bodies = [body for _, body in queue]
        assert bodies == sorted(bodies)
