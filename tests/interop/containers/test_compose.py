"""docker-compose.yml under podman-compose: a notebook on the broker, and a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.containers.podman import (
    RUN_OPTIONS,
    STOP_SECONDS,
    environment,
    inspect,
    new_name,
    podman,
    wait_until_healthy,
)
from tests.support.docker.compose_files import FOLDER
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(4 * WAIT_SECONDS_MAX),
]
# No systemd runs health checks here, so the test runs them and waits; ports of the host stay free.
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


class Project:
    """The services of the compose file under a name of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.name = new_name()
        self._override = folder / "override.yml"
        self._override.write_text(OVERRIDE, encoding="utf-8")

    def compose(self, *words: str) -> None:
        files = ("-f", str(FOLDER / "docker-compose.yml"), "-f", str(self._override))
        options = (f"--podman-run-args={RUN_OPTIONS[1]}", "-p", self.name)
        done = subprocess.run(
            [sys.executable, "-m", "podman_compose", *files, *options, *words],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def container(self, service: str) -> str:
        return f"{self.name}_{service}_1"

    def run(self, service: str, *words: str) -> str:
        return podman("exec", self.container(service), *words).stdout

    def wait_until_healthy(self) -> None:
        check = ("rocketpy", "health", "--timeout", "30")
        wait_until_healthy(self.container("broker"), check)
        assert "SERVING" in self.run("broker", *check)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    project.compose("up", "-d", "--no-build")
    yield project
    project.compose("down", "--volumes", "-t", str(STOP_SECONDS))


def test_a_notebook_works_on_the_broker_whose_messages_outlive_a_restart(project: Project) -> None:
    project.wait_until_healthy()
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
    project.wait_until_healthy()
    tail = project.run("broker", "rocketpy", "message", "tail", "kept", "-n", "1")
    assert "before the restart" in tail
