"""Failing first attempts of tasks, or killed workers, on a live cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.cluster.cluster import A
from tests.interop.spark.queries import OfCluster
from tests.support.time_limits import WAIT_SECONDS_MAX

PROGRAM = Path(__file__).parents[3] / "spark" / "exactly_once" / "failing_attempts.py"
CONTROL = "rocketpy_control"
ROWS = 20_000


@pytest.mark.parametrize(
    ("how", "delivery", "copies_max"),
    [
        ("raise", "effectively-once", 1),
        ("kill", "effectively-once", 1),
        ("kill", "at-least-once", 2),
    ],
)
def test_s02_first_attempts_that_fail_lose_nothing_and_double_what_they_may(
    of_cluster: OfCluster, tmp_path: Path, how: str, delivery: str, copies_max: int
) -> None:
    of_cluster.cluster.create_topic(CONTROL, 1, [of_cluster.cluster.broker(A)])
    where = {"nameServer": of_cluster.cluster.addresses, "delivery": delivery}
    words = [json.dumps(where), str(tmp_path), f"{how}:batch:{of_cluster.topic}"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    rows = of_cluster.read_written().select("body", "msgId").collect()
    counts = Counter(bytes(row.body) for row in rows)
    assert counts.keys() == {str(number).encode() for number in range(ROWS)}
    assert max(counts.values()) <= copies_max
    assert len({row.msgId for row in rows}) == ROWS, "copies have other keys"
