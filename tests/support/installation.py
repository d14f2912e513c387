"""Installation of our wheel without downloads: libraries come from the test's environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


OURS = "pyspark-rocketpy"
# Takes extras; returns the `bin` of an environment.
Environment = Callable[..., Path]


def build_wheel(top: Path, folder: Path) -> Path:
    """Builds the wheel from the work tree into `folder`."""
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(top)]
    run(Path(sys.executable), *build)
    (wheel,) = folder.glob("pyspark_rocketpy-*.whl")
    return wheel


def run(program: Path, *arguments: str) -> str:
    """Runs a program outside the work tree, with nothing activated; returns its output."""
    ours = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"}
    outside = {name: value for name, value in os.environ.items() if name not in ours}
    outside["PATH"] = SYSTEM_PATH
    done = subprocess.run(
        [program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=outside,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def metadata_of(wheel: Path) -> Distribution:
    name = "-".join(wheel.name.split("-")[:2])
    return PathDistribution(ZipPath(ZipFile(wheel), f"{name}.dist-info/"))


def requirements(library: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """Yields the requirements of `library` on this machine, with `extras`."""
    for text in library.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield requirement


def required(library: Distribution, extras: set[str]) -> dict[str, Distribution]:
    """Returns every direct and indirect dependency of `library`, by name."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements(library, extras))
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = distribution(name)
            waiting += requirements(found[name], requirement.extras)
    return found


def link_files(library: Distribution, site_packages: Path) -> None:
    for file in library.files or []:
        # Includes what pip has compiled: otherwise each process compiles all its imports.
        if ".." not in file.parts:
            link = site_packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(file.locate())))


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Makes a new venv in `folder` with our wheel, unpacked by pip; returns its `bin`.

    It links to exactly the files of the libraries that the wheel and its extras require.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    words = ["install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
    run(Path(sys.executable), "-m", "pip", "--python", str(python), *words, str(wheel))
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for name, library in required(metadata_of(wheel), set(extras)).items():
        # An extra may name other extras of the wheel itself.
        if name != OURS:
            link_files(library, site_packages)
    return python.parent
