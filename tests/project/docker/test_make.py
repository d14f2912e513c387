"""`make docker` and `make compose`: they use an engine that answers, or report that none does.

The programs of engines are scripts that record their calls, and fail if a table says so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.docker.dockerfile import TOP
from tests.support.time_limits import WAIT_SECONDS_MAX

# Programs that the Makefile's first lines and these targets call.
NEEDED = ("make", "sh", "cat", "cksum", "cut", "pwd", "dirname")


class Engines:
    """A path with programs of engines; commands in `failing` exit with 1, such as `docker info`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "path"
        self._calls = folder / "calls"
        self._path.mkdir()
        for name in NEEDED:
            found = shutil.which(name)
            if found:
                (self._path / name).symlink_to(found)

    def add(self, name: str, *failing: str) -> None:
        cases = "".join(f'    "{words}") exit 1;;\n' for words in failing)
        case = f'case "$*" in\n{cases}esac\n' if cases else ""
        note = f'echo "{name} $*" >> {self._calls}\n'
        program = self._path / name
        program.write_text(f"#!/bin/sh\n{case}{note}", encoding="utf-8")
        program.chmod(0o755)

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", *words],
            cwd=TOP,
            env={"PATH": str(self._path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS_MAX,
        )

    @property
    def calls(self) -> list[str]:
        lines = self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []
        return [line for line in lines if not line.endswith((" info", " compose version"))]


@pytest.fixture
def engines(tmp_path: Path) -> Engines:
    return Engines(tmp_path)


def builds(engine: str, form: str = "") -> list[str]:
    return [
        f"{engine} build {form}-f docker/Dockerfile --target {name} -t rocketpy-{name} ."
        for name in ("broker", "notebooks")
    ]


def test_docker_builds_both_images(engines: Engines) -> None:
    engines.add("docker")
    engines.add("podman")
    assert engines.make("docker").returncode == 0
    assert engines.calls == builds("docker")


def test_podman_builds_them_where_docker_does_not_answer(engines: Engines) -> None:
    engines.add("docker", "info")
    engines.add("podman")
    assert engines.make("docker").returncode == 0
    assert engines.calls == builds("podman", "--format docker ")


def test_compose_builds_and_runs(engines: Engines) -> None:
    engines.add("docker")
    assert engines.make("compose").returncode == 0
    up = "docker compose -f docker/docker-compose.yml up"
    assert engines.calls == [*builds("docker"), up]


def test_compose_runs_the_file_that_it_is_told(engines: Engines) -> None:
    engines.add("docker")
    file = "docker/docker-compose.rocketmq.yml"
    assert engines.make("compose", f"FILE={file}").returncode == 0
    assert engines.calls[-1] == f"docker compose -f {file} up"


def test_compose_as_a_program_of_its_own(engines: Engines) -> None:
    engines.add("podman", "compose version")
    engines.add("podman-compose")
    assert engines.make("compose").returncode == 0
    assert engines.calls[-1] == "podman-compose -f docker/docker-compose.yml up"


def test_a_missing_compose_is_said(engines: Engines) -> None:
    engines.add("docker", "compose version")
    done = engines.make("compose")
    assert done.returncode == 2
    assert "make: docker has no compose; install its plugin or docker-compose" in done.stderr


@pytest.mark.parametrize("target", ["docker", "compose"])
def test_no_program_of_an_engine_is_said(engines: Engines, target: str) -> None:
    done = engines.make(target)
    assert done.returncode == 2
    assert "make: no container engine: neither docker nor podman is installed" in done.stderr


@pytest.mark.parametrize("target", ["docker", "compose"])
def test_a_program_without_an_engine_is_said(engines: Engines, target: str) -> None:
    engines.add("docker", "info")
    done = engines.make(target)
    assert done.returncode == 2
    assert "make: no container engine answers: docker is installed" in done.stderr
    assert engines.calls == []


def test_help_lists_both() -> None:
    done = subprocess.run(
        ["make", "help"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS_MAX,
    )
    listed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")}
    assert {"docker", "compose"} <= listed
