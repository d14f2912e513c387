"""The README's example runs as a program of its own, as a reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_runs_as_it_stands(tmp_path: Path) -> None:
    program = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1000"


def test_the_example_fits_a_screen() -> None:
    program = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len([line for line in program.splitlines() if line]) <= 15
