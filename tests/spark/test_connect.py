"""The connector under Spark Connect, in a separate process beside the suite's classic session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker

TOP = Path(__file__).parents[2]
PROGRAM = "tests.spark.connect_program"
# These would make the client's session a classic one, or lead it to another server.
OTHERS = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")


@pytest.mark.slow
def test_spark_connect_reads_writes_and_streams_exactly_once(
    rocketpy_broker: LocalBroker, tmp_path: Path
) -> None:
    for topic in ("source", "target"):
        rocketpy_broker.create_topic(f"connect-{topic}", queues=2)
    kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", PROGRAM, rocketpy_broker.endpoint],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": os.pathsep.join([str(TOP), *sys.path])},
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {
        "is_connect": True,
        "source": 1000,
        "batches": 4,
        "replayed": 1,
        "target": 1000,
        "distinct": 1000,
        "metrics": {"rows": 1000, "batch": 0, "lag": 0, "rows after the end": None},
    }
