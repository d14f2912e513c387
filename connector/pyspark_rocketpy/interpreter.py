"""Choice of the Python that Spark starts: this one by default.

Spark starts PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else `python3` of the PATH. A program may
run as `venv/bin/python program.py`, without an activated environment. Spark would then start a
Python without this package, and raise DATA_SOURCE_NOT_FOUND.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping

WORKERS, DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
# Set if `spark-submit` or a notebook service has started Spark and chosen the Python.
STARTED_BY_SPARK = "PYSPARK_GATEWAY_PORT"


def choose_python(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets this interpreter for workers and driver, unless the environment names one.

    It sets nothing if `python3` of the PATH is this interpreter. Then executors on other machines
    find theirs by the same name.
    """
    chosen = {WORKERS, DRIVER, STARTED_BY_SPARK, "SPARK_ENV_LOADED"} & environment.keys()
    is_default = shutil.which("python3", path=environment.get("PATH")) == sys.executable
    if sys.executable and not chosen and not is_default:
        environment[WORKERS] = environment[DRIVER] = sys.executable
