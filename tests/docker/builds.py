"""Carries out a Dockerfile without an engine, and runs what comes out.

As in an engine: the order of instructions, the context behind .dockerignore, the shell of RUN,
environment, working folder, the exec form of commands, signals, volumes that outlive a container.

Otherwise than in an engine: an image is a folder, and absolute paths are those below it. The base
is a fresh environment of the test's Python. pip finds libraries in tests/docker/offline_index.py,
and programs that change a system are those of tests/docker/system_programs.py. A container is a
process of the test's user in the machine's network, so its port is a free one; it is no process 1.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType

from tests.docker.dockerfile import TOP, Instruction, Stage, context_files, stages
from tests.docker.offline_index import fill
from tests.docker.system_programs import PROGRAMS
from tests.installation import link_files
from tests.patience import PATIENCE_SECONDS

# What python:…-slim brings, as far as builds, Spark's scripts and Jupyter call it.
BASE_PROGRAMS = (
    *("sh", "bash", "env", "ls", "rm", "cat", "cp", "mkdir", "ln", "readlink", "chmod", "touch"),
    *("dirname", "basename", "uname", "sed", "grep", "expr", "tr", "id", "sort", "head", "nice"),
)
# An absolute path in a command; not the path of a URL.
ABSOLUTE = re.compile(r"(?<![\w./:*)}])/(?=\w)")
# Describe an image; a build does nothing for them.
DESCRIBING = {"LABEL", "EXPOSE", "VOLUME", "HEALTHCHECK", "CMD", "ENTRYPOINT", "STOPSIGNAL", "ARG"}
BUILD_SECONDS_MAX = PATIENCE_SECONDS
# A check that is refused takes a tenth of a second; a start takes many on a busy machine.
HEALTHY_CHECKS_MAX = 600
STOP_SECONDS_MAX = PATIENCE_SECONDS


@dataclass
class Image:
    """A stage that is built: its folder, and how its commands run."""

    stage: Stage
    root: Path
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"

    def mapped(self, text: str) -> str:
        """With absolute paths as paths below the image's folder."""
        return ABSOLUTE.sub(f"{self.root}/", text)

    @property
    def site_packages(self) -> Path:
        (found,) = self.root.glob("usr/local/lib/python3*/site-packages")
        return found

    @property
    def owners(self) -> dict[str, str]:
        """Folders that were given to a user: uid:gid."""
        path = self.root / "owners"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return {line.split()[0]: line.split()[1] for line in lines}

    def process_environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root}/usr/local/bin:{self.root}/usr/bin",
            "HOME": f"{self.root}/root",
            "TMPDIR": f"{self.root}/tmp",
            "LANG": "C.UTF-8",
            **{name: self.mapped(value) for name, value in self.environment.items()},
        }


class Builder:
    """Builds stages of a Dockerfile below `folder`; `index` is where pip finds libraries."""

    def __init__(self, folder: Path, index: Path) -> None:
        self._folder = folder
        self._index = index
        self._stages = stages()
        self._context = context_files()
        self._built: dict[str, Image] = {}

    def build(self, name: str) -> Image:
        """The image of a stage; built once."""
        if name not in self._built:
            image = self._base(self._stages[name])
            for instruction in image.stage.instructions:
                self._carry_out(image, instruction)
            self._built[name] = image
        return self._built[name]

    def _base(self, stage: Stage) -> Image:
        assert re.fullmatch(r"python:3\.\d+-slim-bookworm", stage.base), stage.base
        image = Image(stage, self._folder / stage.name)
        venv.create(image.root / "usr/local", symlinks=True)
        link_files(distribution("pip"), image.site_packages)
        programs = image.root / "usr/bin"
        for folder in (programs, image.root / "tmp", image.root / "root"):
            folder.mkdir(parents=True)
        for program in BASE_PROGRAMS:
            (programs / program).symlink_to(shutil.which(program) or os.devnull)
        emulated = Path(__file__).with_name("system_programs.py")
        for program in PROGRAMS:
            call = f"exec {sys.executable} {emulated} {program}"
            (programs / program).write_text(f'#!/bin/sh\n{call} "$@"\n', encoding="utf-8")
            (programs / program).chmod(0o755)
        return image

    def _carry_out(self, image: Image, instruction: Instruction) -> None:
        match instruction.name:
            case "WORKDIR":
                image.workdir = instruction.text
                (image.root / image.workdir[1:]).mkdir(parents=True, exist_ok=True)
            case "ENV":
                image.environment |= instruction.pairs
            case "USER":
                image.user = instruction.text
            case "COPY":
                self._copy(image, instruction)
            case "RUN":
                self._run(image, instruction.text)
            case name:
                assert name in DESCRIBING, f"the emulation knows no {name}"

    def _copy(self, image: Image, instruction: Instruction) -> None:
        assert set(instruction.flags) <= {"from"}, instruction
        *sources, target = instruction.arguments
        to = image.root / image.workdir[1:] / image.mapped(target)
        if origin := instruction.flags.get("from"):
            (source,) = sources
            shutil.copytree(self.build(origin).root / source[1:], to)
            return
        for source in sources:
            files = [path for path in self._context if path == source]
            files += [path for path in self._context if path.startswith(f"{source}/")]
            assert files, f"COPY {source}: not in the context"
            for path in files:
                place = to / path[len(source) + 1 :] if path != source else to
                if path == source and (target.endswith("/") or to.is_dir()):
                    place = to / Path(path).name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TOP / path, place)

    def _run(self, image: Image, text: str) -> None:
        environment = {
            **image.process_environment(),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self._index),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            "EMULATED_ROOT": str(image.root),
            "EMULATED_JAVA_HOME": os.environ.get("JAVA_HOME", ""),
        }
        done = subprocess.run(
            ["/bin/sh", "-c", image.mapped(text)],
            cwd=image.root / image.workdir[1:],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
        assert done.returncode == 0, f"RUN {text}\n{done.stdout}"
        fill(image.site_packages)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Container:
    """The process of an image: its entry point and command, or other words behind the entry point.

    `ports` are those that the image exposes, and what they become here: free ones. `port` is the
    first of them. What it prints is in `log`. Use it as a context: at its end the process is killed
    if it still runs.
    """

    def __init__(
        self,
        image: Image,
        *more: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._image = image
        self.ports = {exposed: _free_port() for exposed in image.stage.last("EXPOSE").words}
        self.port = next(iter(self.ports.values()))
        self._environment = {**image.process_environment(), **(environment or {})}
        entry = image.stage.all("ENTRYPOINT")
        self._words = [word for part in entry for word in part.words]
        self._words += [*image.stage.last("CMD").words, *more]
        self.log_path = image.root / "container.log"

    def command(self, words: Sequence[str]) -> list[str]:
        """`words` as this container runs them."""
        number = re.compile(rf"(?<!\d)({'|'.join(self.ports)})(?!\d)")
        first, *rest = [
            number.sub(lambda found: str(self.ports[found[1]]), self._image.mapped(word))
            for word in words
        ]
        program = shutil.which(first, path=self._environment["PATH"])
        assert program is not None, f"{first}: not in the image"
        return [program, *rest]

    def __enter__(self) -> Container:
        with self.log_path.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                self.command(self._words),
                cwd=self._image.root / self._image.workdir[1:],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs words in the container to their end, as `docker exec` does."""
        return subprocess.run(
            self.command(words),
            cwd=self._image.root / self._image.workdir[1:],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )

    def check_health(self) -> bool:
        return self.run(*self._image.stage.health_command).returncode == 0

    def wait_until_healthy(self) -> None:
        """Asks by the image's HEALTHCHECK until it says yes. Each question takes its time."""
        for _ in range(HEALTHY_CHECKS_MAX):
            if self.check_health():
                return
            assert self.process.poll() is None, self.log
        raise AssertionError(f"not healthy after {HEALTHY_CHECKS_MAX} checks: {self.log}")

    def stop(self) -> int:
        """Sends the image's stop signal; the exit code."""
        name = self._image.stage.last("STOPSIGNAL").text
        self.process.send_signal(signal.Signals[name])
        return self.process.wait(STOP_SECONDS_MAX)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
