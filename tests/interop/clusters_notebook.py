"""The notebook notebooks/clusters.py on a live cluster, as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.time_limits import WAIT_SECONDS_MAX

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "clusters.py"


def run_notebook(told: Mapping[str, str], folder: Path) -> str:
    """Runs it with these variables in a folder, asserts that it succeeds, returns its output."""
    done = subprocess.run(
        [sys.executable, NOTEBOOK],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **told, "ROCKETPY_ORDERS": "300"},
        timeout=2 * WAIT_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "600 orders written and read."
    return done.stdout
