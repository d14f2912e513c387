"""A Spark cluster of one test: a master and two workers on different host names.

Spark runs a second attempt of a task only on another host than the first one's. Here the hosts are
addresses of the loopback, so all traffic stays on this machine. Master and workers end with the
test, and their executors with them; they keep nothing but logs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyspark

from rocketpy_broker.embedded.process import ReservedPort
from tests.support.spark.copies import kill_with_children
from tests.support.time_limits import WAIT_SECONDS_MAX

MASTER_HOST, WORKER_HOSTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
CORES = 2  # Per worker: one may stand still while the other one works.
DEPLOY = "org.apache.spark.deploy"
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_SECONDS_MAX = WAIT_SECONDS_MAX
LOOK_SECONDS = 0.02


@contextmanager
def two_hosts(folder: Path) -> Iterator[str]:
    """Yields the address of a master with workers that write to `folder`."""
    with ExitStack() as stack:
        port = stack.enter_context(closing(ReservedPort())).number
        master = f"spark://{MASTER_HOST}:{port}"

        def start(name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
            with (folder / f"{name}-{host}.log").open("w", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [SPARK_CLASS, f"{DEPLOY}.{name}", "--host", host, *arguments],
                    env=environment(host, folder),
                    stdout=log,
                    stderr=log,
                )
            stack.callback(kill_with_children, process)
            return process

        # A worker that finds no master waits for many seconds before it asks again.
        page = ("--webui-port", "0")
        wait_listening(start("master.Master", MASTER_HOST, *page, "--port", str(port)), port)
        for host in WORKER_HOSTS:
            size = ("--cores", str(CORES), "--memory", "1g")
            work = ("--work-dir", str(folder / "work"))
            start("worker.Worker", host, *page, *size, *work, master)
        yield master


def environment(host: str, folder: Path) -> dict[str, str]:
    """Returns the environment for any part of the cluster, drivers too: on this host alone."""
    return {
        **os.environ,
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # Its port is a fixed one.
        "SPARK_DAEMON_MEMORY": "256m",
    }


def wait_listening(master: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection((MASTER_HOST, port)).close()
        except ConnectionRefusedError:
            assert master.poll() is None, "the master has ended; see its log"
            assert time.monotonic() < deadline, "the master has not come up"
            time.sleep(LOOK_SECONDS)
        else:
            return
