"""The notebook that runs on either side, on a living cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.interop.spark.queries import OfCluster
from tests.patience import PATIENCE_SECONDS

NOTEBOOK = Path(__file__).parents[3] / "notebooks" / "clusters.py"


def test_the_notebook_runs_on_a_cluster_by_one_parameter(
    of_cluster: OfCluster, tmp_path: Path
) -> None:
    of_cluster.send_to_all("of somebody else", 3)
    told = {
        "ROCKETPY_NAMESERVER": of_cluster.cluster.addresses,
        "ROCKETPY_TOPIC": of_cluster.topic,
        "ROCKETPY_ORDERS": "300",
    }
    done = subprocess.run(
        [sys.executable, NOTEBOOK],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **told},
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "600 orders written, and read from where they are."
    assert "broker-4" in done.stdout
