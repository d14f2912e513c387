"""docker-compose.yml under podman-compose: a notebook on the broker, and a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.containers.compose import Project
from tests.interop.containers.podman import STOP_SECONDS, inspect, podman
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(4 * WAIT_SECONDS_MAX),
]
# Ports of the host stay free.
# The images of Prometheus and Grafana are not ours to build: a profile leaves them out.
OVERRIDE = """
services:
  broker:
    healthcheck: {disable: true}
    ports: !reset []
  notebooks:
    healthcheck: {disable: true}
    depends_on: !reset []
    ports: !reset []
    environment:
      ROCKETPY_PAYMENTS: "2000"
  prometheus:
    profiles: [metrics]
  grafana:
    profiles: [metrics]
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project("docker-compose.yml", OVERRIDE, tmp_path)
    project.compose("up", "-d", "--no-build")
    yield project
    project.compose("down", "--volumes", "-t", str(STOP_SECONDS))


def test_a_notebook_works_on_the_broker_whose_messages_outlive_a_restart(project: Project) -> None:
    project.wait_until_healthy("broker")
    running = podman("ps", "--format={{.Names}}", f"--filter=name={project.name}").stdout.split()
    assert sorted(running) == [project.container(name) for name in ("broker", "notebooks")]
    notebook = "notebooks/exactly_once.ipynb"
    project.run("notebooks", "jupyter", "execute", "--output=/tmp/done.ipynb", notebook)
    done = project.run("notebooks", "cat", "/tmp/done.ipynb")
    assert "2000 payments, each booked once." in done
    counted = project.run("broker", "rocketpy", "stats")
    assert "get found count" in counted
    project.run("broker", "rocketpy", "topic", "create", "kept", "--queues", "1")
    project.run("broker", "rocketpy", "message", "send", "kept", "--body", "before the restart")
    project.compose("stop", "-t", str(STOP_SECONDS), "broker")
    assert inspect(project.container("broker"))["State"]["ExitCode"] == 0
    project.compose("start", "broker")
    project.wait_until_healthy("broker")
    tail = project.run("broker", "rocketpy", "message", "tail", "kept", "-n", "1")
    assert "before the restart" in tail
