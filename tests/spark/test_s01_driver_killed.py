"""Rows S1 and S3: drivers and brokers are killed in the middle; the copy is exact.

Each point of a micro-batch is reached by a proxy that holds the call which marks it. The driver is
then killed with its workers, and the next one goes on from the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.patience import PATIENCE_SECONDS
from tests.spark.conftest import Topic
from tests.spark.copying import check_copied, driver, send_numbered
from tests.spark.copying_driver import BATCH_ROWS, Copying
from tests.spark.holding_proxy import COMMIT_BATCH, PULL, STAGE_BLOCKS, HoldingProxy, Moment

MESSAGES = 12 * BATCH_ROWS
# In pieces that can be run by themselves: each takes some fifteen minutes.
PIECES_TORTURE, ROUNDS_PIECE = 10, 10
LOOK_SECONDS = 0.002
DONE_SECONDS_MAX = PATIENCE_SECONDS


@dataclass(frozen=True)
class Point:
    """Where in a micro-batch to kill: at a call, or behind Spark's own commit.

    `skip` as in Hold.
    """

    method: str | None
    moment: Moment = Moment.ASKED
    skip: int = 0


POINTS = {
    "offsets logged": Point(PULL),
    "reading": Point(PULL, Moment.ANSWERED),
    "greeting": Point(STAGE_BLOCKS, Moment.ANSWERED),
    # Two tasks greet, and each has a block and an end.
    "writing": Point(STAGE_BLOCKS, Moment.ANSWERED, skip=2),
    "before the decision": Point(COMMIT_BATCH),
    "between the sink's commit and Spark's": Point(COMMIT_BATCH, Moment.ANSWERED),
    "committed": Point(None),
}


# Of two time-outs the function's would win.
@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=pytest.mark.timeout(600)),
        *[
            pytest.param(
                ROUNDS_PIECE,
                marks=(pytest.mark.torture, pytest.mark.timeout(3 * 3600)),
                id=f"piece {piece} of {PIECES_TORTURE}",
            )
            for piece in range(1, PIECES_TORTURE + 1)
        ],
    ],
)
def test_s1_a_driver_killed_at_any_point_of_a_batch_loses_and_doubles_nothing(
    rounds: int, new_topic: Callable[..., Topic], tmp_path: Path, rocketpy_broker: LocalBroker
) -> None:
    with HoldingProxy(rocketpy_broker.endpoint) as proxy:
        for number in range(rounds):
            source, target = new_topic(), new_topic()
            copying = Copying(
                proxy.endpoint, source.name, target.name, str(tmp_path / f"checkpoint-{number}")
            )
            sent = send_numbered(source, MESSAGES)
            for point in POINTS.values():
                kill_at(point, proxy, copying)
            finish(copying)
            check_copied(source, target, sent)


def kill_at(point: Point, proxy: HoldingProxy, copying: Copying) -> None:
    """Run a driver until its query gets there, and kill it."""
    if point.method is None:
        commits = Path(copying.checkpoint) / "commits"
        before = batches_of(commits)
        with driver(copying) as running:
            deadline = time.monotonic() + DONE_SECONDS_MAX
            while batches_of(commits) == before:
                assert time.monotonic() < deadline, running.log_text()[-3000:]
                time.sleep(LOOK_SECONDS)
        return
    hold = proxy.hold(point.method, point.moment, point.skip)
    with driver(copying):
        hold.wait_reached()
    hold.release()


def batches_of(folder: Path) -> set[str]:
    """The batches that Spark has noted in a folder of its checkpoint."""
    return {path.name for path in folder.glob("*") if path.name.isdecimal()}


def finish(copying: Copying) -> None:
    """Copy what is left."""
    with driver(replace(copying, available_now=True)) as last:
        last.wait()


@pytest.mark.torture
@pytest.mark.timeout(300)
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
