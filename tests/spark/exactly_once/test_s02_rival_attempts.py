"""Two attempts of a task at once, or a killed executor; the output is exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.spark.exactly_once.standalone import MASTER_HOST, environment, two_hosts

PROGRAM = Path(__file__).parent / "rival_attempts.py"
ROWS = 20_000
# Job, role, and the progress of the role's first attempt.
ROLES = [
    ("batch", "standing", "handed over"),
    ("batch", "racing", "written"),
    ("stream", "standing", "handed over"),
    ("stream", "racing", "written"),
    ("killed", "killing", "written"),
]
JOBS = sorted({job for job, *_ in ROLES})


# Pieces can be run separately. Starting a cluster and a driver costs more than a run, so the runs
# of a piece share them; each run has topics of its own.
PIECES_TORTURE, RUNS_PIECE = 20, 10
RUN_SECONDS_MAX = 480


@pytest.mark.slow
def test_s2_of_two_attempts_at_once_one_shows_also_when_an_executor_dies(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_and_check(spark, tmp_path, 1)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "piece", range(PIECES_TORTURE), ids=lambda piece: f"piece {piece + 1} of {PIECES_TORTURE}"
)
def test_s2_of_two_attempts_one_shows_each_time(
    piece: int, spark: SparkSession, tmp_path: Path
) -> None:
    run_and_check(spark, tmp_path, RUNS_PIECE)


def run_and_check(spark: SparkSession, tmp_path: Path, runs: int) -> None:
    """Runs all jobs `runs` times, with a new broker and a new cluster, and checks each run."""
    with LocalBroker() as broker:
        for number in range(runs):
            for job in JOBS:
                broker.create_topic(f"{job}-{number}", queues=3)
        with two_hosts(tmp_path) as master:
            run(master, broker.endpoint, tmp_path, runs)
        told = (tmp_path / "attempts").read_text().splitlines()
        assert not [line for line in told if line.startswith("in vain")]
        for number in range(runs):
            check_run(Topic("", spark, broker), number, told)


def check_run(any_topic: Topic, number: int, told: list[str]) -> None:
    """Asserts one run's rows, and that its attempts met as intended."""
    topics = [f"{job}-{number}" for job in JOBS]
    every = any_topic.read(topic=None, topics=",".join(topics))
    rows = every.select("topic", "body", "queueId", "queueOffset").collect()
    for topic in topics:
        check_exact([row for row in rows if row.topic == topic])
    for job, role, first_end in ROLES:
        beginning = f"{job}-{number} {role} "
        check_two_attempts([line for line in told if line.startswith(beginning)], first_end)


def run(master: str, endpoint: str, folder: Path, runs: int) -> None:
    command = [sys.executable, str(PROGRAM), master, endpoint, str(folder), str(runs)]
    done = subprocess.run(
        command,
        env=environment(MASTER_HOST, folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX * runs,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def check_exact(rows: list[Row]) -> None:
    """Asserts that every row is there once, and that no queue has a hole."""
    assert sorted(int(row.body) for row in rows) == list(range(ROWS))
    for queue_id in {row.queueId for row in rows}:
        offsets = sorted(row.queueOffset for row in rows if row.queueId == queue_id)
        assert offsets == list(range(len(offsets)))


def check_two_attempts(told: list[str], first_end: str) -> None:
    """Asserts the first attempt's progress, and that another one wrote beside or after it."""
    first, rival = sorted(line.split(maxsplit=4)[2:] for line in told)[:2]
    assert (first[0], first[2]) == ("0", first_end)
    # Any later one: see RIVALS of the program.
    assert int(rival[0]) > 0
    assert rival[2] == "written"
    assert first[1] != rival[1]
