"""docker-compose.replication.yml under podman-compose: a promotion, and the old master's return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.containers.compose import Project
from tests.interop.containers.podman import STOP_SECONDS, podman
from tests.support.time_limits import WAIT_SECONDS_MAX

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.xdist_group("containers"),
    pytest.mark.timeout(8 * WAIT_SECONDS_MAX),
]
# Ports of the host stay free.
OVERRIDE = """
services:
  namesrv:
    healthcheck: {disable: true}
    ports: !reset []
  broker1:
    healthcheck: {disable: true}
    depends_on: !reset []
    ports: !reset []
  broker2:
    healthcheck: {disable: true}
    depends_on: !reset []
    ports: !reset []
"""
SEND = ("rocketpy", "message", "send", "orders", "--body")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project("docker-compose.replication.yml", OVERRIDE, tmp_path)
    project.compose("up", "-d", "--no-build")
    yield project
    project.compose("down", "--volumes", "-t", str(STOP_SECONDS))


def bodies_shown(text: str) -> tuple[str, ...]:
    """Returns a program that succeeds when the topic's last messages have a text."""
    return "sh", "-c", f"rocketpy message tail orders -n 9 | grep -q '{text}'"


def test_h04_the_slave_is_promoted_and_the_old_master_comes_back(project: Project) -> None:
    for service in ("broker1", "broker2"):
        project.wait_until_healthy(service)
    project.run("broker1", "rocketpy", "topic", "create", "orders", "--queues", "1")
    # Without its slave the master refuses an acknowledgement.
    project.until("broker2", "rocketpy", "topic", "describe", "orders")
    project.run("broker1", *SEND, "from broker1")
    podman("kill", project.container("broker1"))
    project.until("broker2", "rocketpy", "broker", "promote")
    project.until("broker2", *SEND, "from broker2")
    project.until("broker2", *bodies_shown("from broker1"))
    align = ("store", "align", "/data", "--master", "broker2:10911")
    project.compose("run", "--rm", "--no-deps", "-T", "broker1", *align)
    project.compose("up", "-d", "--no-build", BROKER1_ROLE="SLAVE")
    for service in ("broker1", "broker2"):
        project.wait_until_healthy(service)
    project.until("broker1", *bodies_shown("from broker2"))
    project.run("broker2", *SEND, "to both")
    project.until("broker1", *bodies_shown("to both"))
