"""What notebooks find on Databricks, and what stands in for it elsewhere.

On Databricks there are a session, widgets and `display`; under plain Python a session of its own,
environment variables and printed tables. A broker is the notebook's own, unless it is told of
another one. What a notebook opens here goes with `close()`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from rocketpy_broker import LocalBroker
from rocketpy_broker.client import topics
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import RefusedError, UnreachableError
from rocketpy_broker.local import LocalBrokerError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANSWER_SECONDS_MAX = 10.0
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

    def broker(self) -> LocalBroker | GivenBroker:
        """The broker that the parameter `endpoint` names, else one that ends with `close()`."""
        endpoint = self.parameter("endpoint", "")
        if endpoint:
            return self.enter_context(GivenBroker(endpoint))
        return self.enter_context(LocalBroker())

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


class GivenBroker(ExitStack):
    """A broker that others may use, too: of its topics, those made here go with `close()`."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint
        self._connection = self.enter_context(BrokerConnection(endpoint))

    def __enter__(self) -> GivenBroker:
        """Raises LocalBrokerError where no broker answers."""
        try:
            self._connection.health(ANSWER_SECONDS_MAX)
        except UnreachableError as error:
            raise LocalBrokerError(
                f"{error.remark} The parameter `endpoint` names it: start it, or leave the "
                "parameter empty for a broker inside the notebook"
            ) from error
        return self

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Create a topic for the time of the notebook. Raises LocalBrokerError if there is one."""
        try:
            topics.create_topic(self._connection, topic, queues)
        except RefusedError as error:
            raise LocalBrokerError(
                f"{error}; the notebook needs {topic!r} for itself. If it is of an earlier run, "
                f"delete it: rocketpy topic delete {topic} --endpoint {self.endpoint}"
            ) from error
        self.callback(topics.delete_topic, self._connection, topic)
