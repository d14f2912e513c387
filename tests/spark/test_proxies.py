"""Spark's processes in an environment that names a proxy, as on company machines."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from tests.support.proxies import environment_with, recording_proxy
from tests.support.spark.copying_driver import Copying

BODIES = [f"{number}" for number in range(5)]


@pytest.mark.slow
def test_driver_planners_and_tasks_reach_a_broker_of_this_machine(
    rocketpy_broker: LocalBroker, tmp_path: Path
) -> None:
    """Starts a driver that passes its environment to all of Spark's Python processes."""
    for topic in ("proxied", "proxied-copy"):
        rocketpy_broker.create_topic(topic, queues=2)
    rocketpy_broker.send("proxied", BODIES)
    copying = Copying(
        rocketpy_broker.endpoint, "proxied", "proxied-copy", str(tmp_path / "c"), available_now=True
    )
    pythons = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with recording_proxy() as proxy:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.support.spark.copying_driver",
                json.dumps([asdict(copying)]),
            ],
            env=environment_with(proxy.url, **pythons),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, proxy.asked) == (0, []), ended.stderr
    copied = [message.text for message in rocketpy_broker.messages("proxied-copy")]
    assert sorted(copied) == BODIES
