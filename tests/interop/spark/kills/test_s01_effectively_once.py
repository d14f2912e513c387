"""A driver killed at each point of a batch, on a live cluster, effectively once.

A proxy holds the request that marks the point. The test then kills the driver with its workers.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_proto.remoting import RemotingCommand, RequestCode
from tests.interop.cluster.cluster import A
from tests.interop.cluster.holding_proxy import ClusterProxy
from tests.interop.cluster.processes import DIE_WITH_PARENT
from tests.interop.spark.kills.copying_program import BATCH_ROWS
from tests.interop.spark.queries import OfCluster
from tests.support.spark.copies import kill_with_children
from tests.support.spark.holding_proxy import Moment
from tests.support.time_limits import WAIT_SECONDS_MAX

CONTROL = "rocketpy_control"
TOP = Path(__file__).parents[4]
LOOK_SECONDS = 0.002
BATCHES = 6
SENDS = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


@dataclass(frozen=True)
class Point:
    """A request that marks a point of a batch: its kind, the topic, and its moment."""

    kind: str
    moment: Moment = Moment.ANSWERED
    skip: int = 0


OFFSETS_LOGGED = Point("read", Moment.ASKED)
MARKED = Point("mark")
BEGUN = Point("write", Moment.ASKED)
WRITING = Point("write", skip=1)
WRITTEN = Point("note", Moment.ASKED)
BETWEEN = Point("note")
COMMITTED = None
# The next driver runs the same batch again; after COMMITTED, the next one.
POINTS = [
    *(OFFSETS_LOGGED, MARKED, BEGUN, WRITING, WRITTEN, BETWEEN, BETWEEN),
    *(COMMITTED, BETWEEN, BETWEEN),
]


@pytest.mark.timeout(1800)
def test_s01_a_driver_killed_at_each_point_stores_each_row_once(of_cluster: OfCluster) -> None:
    broker = of_cluster.cluster.broker(A)
    of_cluster.cluster.create_topic(CONTROL, 1, [broker])
    source, target = of_cluster.beside("source", A), of_cluster.beside("copy", A)
    for queue_id in (0, 1):
        bodies = [f"{queue_id}-{number}" for number in range(BATCHES * BATCH_ROWS // 2)]
        source.send(A, *bodies, queue_id=queue_id)
    checkpoint = of_cluster.folder / "checkpoint"
    with ClusterProxy(of_cluster.cluster, broker) as proxy:
        program = "tests.interop.spark.kills.copying_program"
        words = [proxy.addresses, source.topic, target.topic, str(checkpoint), "effectively-once"]
        command = [*DIE_WITH_PARENT, sys.executable, "-m", program, *words]
        for point in POINTS:
            kill_at(point, proxy, source.topic, target.topic, command, checkpoint)
        subprocess.run(command, cwd=TOP, check=True, timeout=WAIT_SECONDS_MAX)
    copied = Counter(bytes(row.body) for row in target.read_written().select("body").collect())
    assert copied == Counter(place.body for place in source.sent)


def kill_at(
    point: Point | None,
    proxy: ClusterProxy,
    source: str,
    target: str,
    command: list[str],
    checkpoint: Path,
) -> None:
    """Runs a driver until it reaches the point, and kills it there with its workers."""
    before = committed(checkpoint)
    hold = None
    if point is not None:
        hold = proxy.broker.hold(matching(point.kind, source, target), point.moment, point.skip)
    driver = subprocess.Popen(command, cwd=TOP)

    def check_running() -> None:
        assert driver.poll() is None, "the driver has ended"

    try:
        if hold is not None:
            hold.wait_reached(check_running)
            assert committed(checkpoint) == before, "it went on"
        else:
            until_committed(checkpoint, before, check_running)
    finally:
        kill_with_children(driver)
        proxy.broker.release()
    if hold is not None:
        assert committed(checkpoint) == before, "it went on"


def matching(kind: str, source: str, target: str) -> Callable[[RemotingCommand], bool]:
    """Returns a predicate for requests of this kind."""

    def match(command: RemotingCommand) -> bool:
        fields = command.ext_fields
        if kind == "read":
            return command.code == RequestCode.PULL_MESSAGE and fields["topic"] == source
        if kind == "note":
            is_update = command.code == RequestCode.UPDATE_CONSUMER_OFFSET
            return is_update and fields["topic"] == CONTROL
        to = CONTROL if kind == "mark" else target
        return command.code in SENDS and fields["b"] == to

    return match


def committed(checkpoint: Path) -> set[str]:
    """Returns the batches that Spark has noted as done."""
    return {path.name for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()}


def until_committed(checkpoint: Path, before: set[str], look: Callable[[], None]) -> None:
    """Waits until Spark has noted one more batch as done."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while committed(checkpoint) == before:
        look()
        assert time.monotonic() < end
        time.sleep(LOOK_SECONDS)
