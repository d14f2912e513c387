"""Row S2: two attempts of a task write at once, or an executor dies; what shows is exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from rocketpy_broker import LocalBroker
from tests.spark.conftest import Topic
from tests.spark.standalone import MASTER_HOST, environment, two_hosts

PROGRAM = Path(__file__).parent / "rival_attempts.py"
ROWS = 20_000
# Job, its role, and how far the role's first attempt comes.
ROLES = [
    ("batch", "standing", "handed over"),
    ("batch", "racing", "written"),
    ("stream", "standing", "handed over"),
    ("stream", "racing", "written"),
    ("killed", "killing", "written"),
]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_s2_of_two_attempts_at_once_one_shows_also_when_an_executor_dies(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_and_check(spark, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("rounds", [20, 200])
def test_s2_of_two_attempts_one_shows_each_time(
    spark: SparkSession, tmp_path: Path, rounds: int
) -> None:
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_and_check(spark, folder)


def run_and_check(spark: SparkSession, tmp_path: Path) -> None:
    """All jobs once, over a new broker."""
    jobs = {job for job, *_ in ROLES}
    with LocalBroker() as broker:
        for job in jobs:
            broker.create_topic(job, queues=3)
        with two_hosts(tmp_path) as master:
            run(master, broker.endpoint, tmp_path)
        every = Topic("", spark, broker).read(topic=None, topics=",".join(jobs))
        rows = every.select("topic", "body", "queueId", "queueOffset").collect()
    for job in jobs:
        check_exact([row for row in rows if row.topic == job])
    told = (tmp_path / "attempts").read_text().splitlines()
    assert not [line for line in told if line.startswith("in vain")]
    for job, role, first_end in ROLES:
        check_two_attempts([line for line in told if line.startswith(f"{job} {role} ")], first_end)


def run(master: str, endpoint: str, folder: Path) -> None:
    command = [sys.executable, str(PROGRAM), master, endpoint, str(folder)]
    done = subprocess.run(
        command,
        env=environment(MASTER_HOST, folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3_000:]


def check_exact(rows: list[Row]) -> None:
    """Every row once, and no hole in any queue."""
    assert sorted(int(row.body) for row in rows) == list(range(ROWS))
    for queue_id in {row.queueId for row in rows}:
        offsets = sorted(row.queueOffset for row in rows if row.queueId == queue_id)
        assert offsets == list(range(len(offsets)))


def check_two_attempts(told: list[str], first_end: str) -> None:
    """The first came as far as it should; the second wrote beside it, or after its death."""
    first, second = sorted(line.split(maxsplit=4)[2:] for line in told)[:2]
    assert (first[0], first[2]) == ("0", first_end)
    assert (second[0], second[2]) == ("1", "written")
    assert first[1] != second[1]
