"""Kills of drivers and brokers in mid-batch; the copy is exact.

A proxy holds the call that marks each point of a micro-batch. The test then kills the driver with
its workers, and the next driver continues from the checkpoint. Starting a driver costs far more
than a micro-batch, so drivers run a query for each point.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.support.spark.copies import (
    Driver,
    check_copied,
    check_each_copied,
    driver,
    finish,
    send_numbered,
    send_numbered_to_each,
)
from tests.support.spark.copying_driver import BATCH_ROWS, Copying
from tests.support.spark.holding_proxy import COMMIT_BATCH, PULL, STAGE_BLOCKS, HoldingProxy, Moment
from tests.support.time_limits import WAIT_SECONDS_MAX

MESSAGES = 12 * BATCH_ROWS
# Per query, for one killed driver and for seven; a driver commits at most two batches of one query.
MESSAGES_QUICK, MESSAGES_TORTURE = 3 * BATCH_ROWS, 6 * BATCH_ROWS
# Pieces can be run separately. Each kills seven drivers of seven queries.
PIECES_TORTURE = 15
LOOK_SECONDS = 0.002
DONE_SECONDS_MAX = WAIT_SECONDS_MAX


@dataclass(frozen=True)
class Point:
    """The point of a micro-batch to kill at: a call, or after Spark's own commit.

    `skip` as in Hold.
    """

    method: str | None
    moment: Moment = Moment.ASKED
    skip: int = 0


POINTS = {
    "offsets logged": Point(PULL),
    "reading": Point(PULL, Moment.ANSWERED),
    "greeting": Point(STAGE_BLOCKS, Moment.ANSWERED),
    # Two tasks send a greeting, and each sends a block and an end.
    "writing": Point(STAGE_BLOCKS, Moment.ANSWERED, skip=2),
    "before the decision": Point(COMMIT_BATCH),
    "between the sink's commit and Spark's": Point(COMMIT_BATCH, Moment.ANSWERED),
    "committed": Point(None),
}


@pytest.mark.slow
def test_s1_a_driver_killed_at_any_point_of_a_batch_loses_and_doubles_nothing(
    new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    """Kills one driver whose queries are at all points."""
    run_and_kill(new_topic, tmp_path, rocketpy_broker, 1, MESSAGES_QUICK)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "piece", range(PIECES_TORTURE), ids=lambda piece: f"piece {piece + 1} of {PIECES_TORTURE}"
)
def test_s1_a_driver_killed_with_each_of_its_queries_elsewhere_loses_and_doubles_nothing(
    piece: int, new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    """Kills each query at each point once, beside six queries at the six different points."""
    run_and_kill(new_topic, tmp_path, rocketpy_broker, len(POINTS), MESSAGES_TORTURE)


def run_and_kill(
    new_topic: Callable[..., Topic], folder: Path, broker: LocalBroker, lives: int, messages: int
) -> None:
    """Kills drivers with a query at each point; checks the copies that the tests' driver ends.

    The queries share nothing but the driver and the broker.
    """
    points = list(POINTS.values())
    sources, targets = ([new_topic() for _ in points] for _ in range(2))
    sent = send_numbered_to_each(sources, messages)
    with ExitStack() as stack:
        proxies = [stack.enter_context(HoldingProxy(broker.endpoint)) for _ in points]
        copyings = [
            Copying(proxy.endpoint, source.name, target.name, str(folder / target.name))
            for proxy, source, target in zip(proxies, sources, targets, strict=True)
        ]
        for life in range(lives):
            kill_at([*points[life:], *points[:life]], proxies, copyings)
        finish(targets[0].spark, *copyings)
    check_each_copied(targets, sent)


def kill_at(points: list[Point], proxies: list[HoldingProxy], copyings: list[Copying]) -> None:
    """Runs a driver until each of its queries has reached its point, and kills it."""
    before = [batches_committed(copying) for copying in copyings]
    # A query to kill after its commit is held at its first read until all queries are held.
    holds = [
        proxy.hold(point.method or PULL, point.moment, point.skip)
        for point, proxy in zip(points, proxies, strict=True)
    ]
    with driver(*copyings) as running:
        for hold in holds:
            hold.wait_reached(running.check_running)
        for number, point in enumerate(points):
            if point.method is None:
                holds[number].release()
                wait_committed(copyings[number], before[number], running)
        running.check_running()
    for number, point in enumerate(points):
        holds[number].release()
        if point.method is not None:
            assert batches_committed(copyings[number]) == before[number], "it went on"


def wait_committed(copying: Copying, before: set[str], running: Driver) -> None:
    """Waits until Spark has noted one more batch as done."""
    deadline = time.monotonic() + DONE_SECONDS_MAX
    while batches_committed(copying) == before:
        assert time.monotonic() < deadline, running.log_text()[-3000:]
        time.sleep(LOOK_SECONDS)


def batches_committed(copying: Copying) -> set[str]:
    """Returns the batches that Spark has noted as done."""
    folder = Path(copying.checkpoint) / "commits"
    return {path.name for path in folder.glob("*") if path.name.isdecimal()}


@pytest.mark.torture
@pytest.mark.parametrize("method", [PULL, STAGE_BLOCKS, COMMIT_BATCH])
def test_s3_a_broker_killed_in_a_batch_is_waited_for(
    method: str, new_topic: Callable[..., Topic], tmp_path: Path
) -> None:
    with LocalBroker(tmp_path / "data") as broker, HoldingProxy(broker.endpoint) as proxy:
        source, target = new_topic(broker=broker), new_topic(broker=broker)
        copying = Copying(
            proxy.endpoint, source.name, target.name, str(tmp_path / "c"), available_now=True
        )
        sent = send_numbered(source, MESSAGES)
        hold = proxy.hold(method, Moment.ANSWERED, skip=2)
        with driver(copying) as running:
            hold.wait_reached()
            broker.kill()
            hold.release()
            broker.start()
            running.wait()
        check_copied(source, target, sent)
