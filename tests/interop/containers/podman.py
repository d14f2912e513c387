"""Containers run by Podman. A container and its volumes end with the test."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.time_limits import WAIT_SECONDS_MAX

FOLDER = Path(__file__).parent
# No systemd runs the health checks, so tests run them; the machine's limits stay unchanged.
RUN_OPTIONS = ("--no-healthcheck", "--ulimit=host")
STOP_SECONDS = 120


def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs Podman. Raises AssertionError with its output if it fails."""
    done = subprocess.run(
        ["podman", *words],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def environment() -> dict[str, str]:
    """Returns the environment of Podman and podman-compose."""
    return {**os.environ, "CONTAINERS_CONF": str(FOLDER / "containers.conf")}


def inspect(name: str) -> Any:
    """Returns Podman's description of an image or a container."""
    [found] = json.loads(podman("inspect", name).stdout)
    return found


def new_name() -> str:
    """Returns a name for a container, a network or a project of the test's own."""
    return f"rocketpy-test-{uuid.uuid4().hex[:12]}"


def log_of(name: str) -> str:
    """Returns the output of a container: standard error, then standard output."""
    done = podman("logs", name)
    return done.stderr + done.stdout


def wait_until_healthy(name: str, check: Sequence[str]) -> None:
    """Runs a check in the container until it succeeds. Fails if the container ends before."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while podman("exec", name, *check, check=False).returncode:
        assert time.monotonic() < deadline, log_of(name)
        assert inspect(name)["State"]["Running"], log_of(name)
        time.sleep(0.2)


class Container:
    """A container of an image, from its start to its end."""

    def __init__(self, image: str, *command: str, options: tuple[str, ...] = ()) -> None:
        self.name = new_name()
        self._words = ("run", "-d", "--name", self.name, *RUN_OPTIONS, *options, image, *command)
        self._health: list[str] = inspect(image)["Healthcheck"]["Test"][1:]

    def __enter__(self) -> Container:
        podman(*self._words)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        podman("rm", "--force", "--volumes", "--time=0", self.name)

    def run(self, *words: str, check: bool = True) -> str:
        """Runs a program in the container; returns its output."""
        return podman("exec", self.name, *words, check=check).stdout

    def wait_until_healthy(self) -> None:
        """Runs the image's health check until it succeeds."""
        wait_until_healthy(self.name, self._health)

    @property
    def log(self) -> str:
        return log_of(self.name)

    def stop(self) -> int:
        """Sends SIGTERM and waits; returns the exit code."""
        podman("stop", f"--time={STOP_SECONDS}", self.name)
        code: int = inspect(self.name)["State"]["ExitCode"]
        return code
