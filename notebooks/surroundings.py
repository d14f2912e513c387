"""The session, parameters, broker and display of a notebook, on Databricks and elsewhere.

Databricks has a session, widgets and `display`. Plain Python gets a session of its own, environment
variables and printed tables. Charts are shown in Jupyter, and saved elsewhere. The broker is the
notebook's own, unless a parameter names another one. `close()` releases everything.
"""

from __future__ import annotations

import atexit
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from rocketpy_broker import LocalBroker
from rocketpy_broker.client import topics
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.errors import RefusedError, UnreachableError
from rocketpy_broker.embedded.local_broker import LocalBrokerError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANSWER_SECONDS_MAX = 10.0
START_SECONDS_MAX = 120.0
LOCAL_CONFIG = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


class Surroundings(ExitStack):
    """The surroundings of a notebook; `names` are its `globals()`, which has Databricks' names."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = names

    def session(self) -> SparkSession:
        """Returns the existing session, else a local one that ends with `close()`."""
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

    def connect_session(self) -> SparkSession:
        """Returns the existing session, else a session of a Spark Connect server.

        The parameter `remote` names the server, sc://host:port. Without it a new server runs until
        `close()`. Raises ConnectServerError.
        """
        if "spark" in self._names:
            return self._names["spark"]  # type: ignore[no-any-return]
        remote = self.parameter("remote", "")
        if not remote:
            remote = self.enter_context(ConnectServer()).remote
        session = SparkSession.builder.remote(remote).getOrCreate()
        self.callback(session.stop)
        return session

    def parameter(self, name: str, default: str) -> str:
        """Returns widget `name`, else environment variable ROCKETPY_<NAME>, else `default`."""
        if "dbutils" not in self._names:
            return os.environ.get(f"ROCKETPY_{name.upper()}", default)
        widgets = self._names["dbutils"].widgets
        widgets.text(name, default)
        return str(widgets.get(name))

    def broker(self) -> LocalBroker | GivenBroker:
        """Returns the broker of parameter `endpoint`, else a new one that ends with `close()`."""
        endpoint = self.parameter("endpoint", "")
        if endpoint:
            return self.enter_context(GivenBroker(endpoint))
        return self.enter_context(LocalBroker())

    def show(self, frame: DataFrame) -> None:
        """Shows the frame by `display`, else prints it as a table."""
        if "display" in self._names:
            self._names["display"](frame)
        else:
            frame.show(truncate=False)

    def plot(self, figure: Figure, path: Path) -> None:
        """Shows the figure by `display` or in Jupyter, else saves it as a PNG at `path`."""
        if "display" in self._names:
            self._names["display"](figure)
        elif "get_ipython" in self._names:
            _show_inline(figure)
        else:
            figure.savefig(path, dpi=120)
            print(f"Chart saved to {path.resolve()}")


class GivenBroker(ExitStack):
    """A shared broker; `close()` deletes the topics that the notebook created."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint
        self._connection = self.enter_context(BrokerConnection(endpoint))

    def __enter__(self) -> GivenBroker:
        """Checks the broker. Raises LocalBrokerError if no broker answers."""
        try:
            self._connection.health(ANSWER_SECONDS_MAX)
        except UnreachableError as error:
            raise LocalBrokerError(
                f"{error.remark} The parameter `endpoint` names it: start it, or leave the "
                "parameter empty for a broker inside the notebook"
            ) from error
        return self

    def create_topic(self, topic: str, queues: int = 8) -> None:
        """Creates a topic until `close()`. Raises LocalBrokerError if the topic exists."""
        try:
            topics.create_topic(self._connection, topic, queues)
        except RefusedError as error:
            raise LocalBrokerError(
                f"{error}; the notebook needs {topic!r} for itself. If an earlier run created it, "
                f"delete it: rocketpy topic delete {topic} --endpoint {self.endpoint}"
            ) from error
        self.callback(topics.delete_topic, self._connection, topic)


class ConnectServerError(Exception):
    """A Spark Connect server ended, or does not listen in time."""


class ConnectServer(ExitStack):
    """A Spark Connect server as a process of its own, at a free port of loopback."""

    def __init__(self) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = int(free.getsockname()[1])
        self.remote = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> ConnectServer:
        """Starts the server and waits until it listens. Raises ConnectServerError."""
        home = Path(pyspark.__file__).parent
        config = {
            **LOCAL_CONFIG,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }
        words = [word for item in config.items() for word in ("--conf", "=".join(item))]
        words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        # These variables configure Sparks and sessions of this process, not the server.
        foreign = ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONF_DIR")
        kept = {name: value for name, value in os.environ.items() if name not in foreign}
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        process = subprocess.Popen(
            [home / "bin" / "spark-submit", "--master", "local[2]", *words, "spark-internal"],
            env={**kept, **python, "SPARK_HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        self.enter_context(process)
        self.callback(process.terminate)
        atexit.register(self.close)  # It would outlive a notebook that fails.
        self.callback(atexit.unregister, self.close)
        try:
            self._wait_until_it_listens(process)
        except ConnectServerError:
            self.close()
            raise
        return self

    def _wait_until_it_listens(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS_MAX
        while process.poll() is None and time.monotonic() < end:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.1)
        ended = process.poll()
        has = (
            f"not listened for {START_SECONDS_MAX:g} s" if ended is None else f"ended with {ended}"
        )
        raise ConnectServerError(f"Spark's Connect server has {has}")


def _show_inline(figure: Figure) -> None:
    # Jupyter installs IPython; elsewhere it may be missing.
    from IPython.display import Image, display  # noqa: PLC0415

    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    display(Image(data=content.getvalue()))  # type: ignore[no-untyped-call]
