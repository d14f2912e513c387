"""What notebooks find on Databricks, and what stands in for it elsewhere.

On Databricks there are a session, widgets and `display`; under plain Python a session of its own,
environment variables and printed tables. What a notebook opens here goes with `close()`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCAL_CONFIG = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


class Surroundings(ExitStack):
    """Made of the notebook's `globals()`, where Databricks puts its names."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = names

    def session(self) -> SparkSession:
        """The session that is there, else a local one that ends with `close()`."""
        if "spark" in self._names:
            return self._names["spark"]  # type: ignore[no-any-return]
        # Spark finds Python data sources with the interpreter that these name.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local[2]").appName("notebook")
        for name, value in LOCAL_CONFIG.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("FATAL")
        self.callback(session.stop)
        return session

    def parameter(self, name: str, default: str) -> str:
        """The widget `name`, else the environment variable ROCKETPY_<NAME>, else `default`."""
        if "dbutils" not in self._names:
            return os.environ.get(f"ROCKETPY_{name.upper()}", default)
        widgets = self._names["dbutils"].widgets
        widgets.text(name, default)
        return str(widgets.get(name))

    def show(self, frame: DataFrame) -> None:
        """`display`, else a printed table."""
        if "display" in self._names:
            self._names["display"](frame)
        else:
            frame.show(truncate=False)

    def plot(self, figure: Figure, path: Path) -> None:
        """`display`, else a PNG at `path`."""
        if "display" in self._names:
            self._names["display"](figure)
        else:
            figure.savefig(path, dpi=120)
            print(f"Chart saved to {path.resolve()}")
