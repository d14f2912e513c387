"""The services of a compose file under podman-compose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.containers.podman import (
    RUN_OPTIONS,
    environment,
    new_name,
    podman,
    wait_until_healthy,
)
from tests.support.docker.compose_files import FOLDER

HEALTH: Sequence[str] = ("rocketpy", "health", "--timeout", "30")


class Project:
    """The services of a file, changed by `override`, under a name of the test's own.

    No systemd runs health checks here, so the tests run them and wait.
    """

    def __init__(self, file: str, override: str, folder: Path) -> None:
        self.name = new_name()
        self._file = file
        self._override = folder / "override.yml"
        self._override.write_text(override, encoding="utf-8")

    def compose(self, *words: str, **variables: str) -> None:
        """Runs podman-compose, with variables of the file."""
        files = ("-f", str(FOLDER / self._file), "-f", str(self._override))
        options = (f"--podman-run-args={RUN_OPTIONS[1]}", "-p", self.name)
        done = subprocess.run(
            [sys.executable, "-m", "podman_compose", *files, *options, *words],
            env={**environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def container(self, service: str) -> str:
        """Returns the name of a service's container."""
        return f"{self.name}_{service}_1"

    def run(self, service: str, *words: str) -> str:
        """Runs a program in a service's container; returns its output."""
        return podman("exec", self.container(service), *words).stdout

    def wait_until_healthy(self, service: str) -> None:
        """Waits until a broker serves."""
        self.until(service, *HEALTH)
        assert "SERVING" in self.run(service, *HEALTH)

    def until(self, service: str, *words: str) -> None:
        """Runs a program in a service's container until it succeeds."""
        wait_until_healthy(self.container(service), words)
