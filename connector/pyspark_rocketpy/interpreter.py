"""Which Python Spark starts: this one, where nobody has said another. Holds no state.

Spark starts PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else `python3` of the PATH. Run as
`venv/bin/python program.py`, with nothing activated, a program would get a Python without this
package, and DATA_SOURCE_NOT_FOUND.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import MutableMapping

WORKERS, DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
# Spark has been started already, by `spark-submit` or a notebook service, and has chosen.
STARTED_BY_SPARK = "PYSPARK_GATEWAY_PORT"


def choose_python(environment: MutableMapping[str, str] = os.environ) -> None:
    """Names this interpreter for workers and driver, unless somebody has named one.

    Where `python3` of the PATH is this interpreter nothing is named, for then executors on other
    machines find theirs by the same word.
    """
    chosen = {WORKERS, DRIVER, STARTED_BY_SPARK, "SPARK_ENV_LOADED"} & environment.keys()
    is_default = shutil.which("python3", path=environment.get("PATH")) == sys.executable
    if sys.executable and not chosen and not is_default:
        environment[WORKERS] = environment[DRIVER] = sys.executable
