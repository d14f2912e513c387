"""The notebook notebooks/sdk_alerts.py with RocketMQ's SDK, as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.apache_v2.conftest import PYTHON
from tests.interop.rocketmq import TOP


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_notebook_of_the_sdk_runs_to_its_end(tmp_path: Path) -> None:
    names = {
        "ROCKETPY_ORDERS": "240",
        "ROCKETPY_SDKPYTHON": str(PYTHON),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, TOP / "notebooks" / "sdk_alerts.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **names},
        timeout=1100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "240 orders of the SDK, 4 alerts for it."
    assert [path for path in tmp_path.iterdir() if path.name.startswith(("sdk", "rocket"))] == []
