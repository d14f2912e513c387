"""A program that runs notebooks one after another, in one process and with one JVM.

    python notebook_runner.py RUNS.json

Each run is an object with `notebook`, its path; `folder`, its working directory; and `environment`.
The printed lines and the trace of a failure go to files in the folder. The interpreter may have
nothing but the wheel.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

PRINTED, FAILURE = "printed.txt", "failure.txt"


def run(notebook: str, folder: str, environment: dict[str, str]) -> None:
    """Runs a notebook as `python NOTEBOOK` does in the folder."""
    os.chdir(folder)
    os.environ.update(environment)
    tempfile.tempdir = None  # The variable TMPDIR applies again.
    sys.argv, sys.path[0] = [notebook], str(Path(notebook).parent)
    with Path(PRINTED).open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        try:
            runpy.run_path(notebook, run_name="__main__")
        except BaseException:
            Path(folder, FAILURE).write_text(traceback.format_exc(), encoding="utf-8")
            if session := SparkSession.getActiveSession():
                session.stop()


def main() -> None:
    """Runs all."""
    for each in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        run(**each)


if __name__ == "__main__":
    main()
