"""A folder of wheels that pip installs from, made of the libraries of the test's environment.

A library that a build needs is packed whole. Others are packed thin: name, version, requirements
and commands, so that pip resolves and installs them as from an index; `fill` then links to the
files.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, PackagePath, distribution, distributions
from pathlib import Path
from zipfile import ZipFile

from tests.installation import OURS, required

BUILD_LIBRARIES = ("hatchling", "hatch-fancy-pypi-readme")
KEPT_OF_THIN = {"METADATA", "entry_points.txt"}
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# What lies in an environment beside its modules: JupyterLab's pages, the kernel's description.
SHARED = {"share", "etc"}


def make_index(folder: Path) -> None:
    """Packs every library of the environment but our own."""
    whole = {normal(name) for name in BUILD_LIBRARIES}
    for name in BUILD_LIBRARIES:
        whole |= {normal(name) for name in required(distribution(name), set())}
    for library in distributions():
        if normal(library.name) != OURS:
            pack(library, folder, whole=normal(library.name) in whole)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pack(library: Distribution, folder: Path, *, whole: bool) -> None:
    stem = f"{normal(library.name).replace('-', '_')}-{library.version}"
    contents = {f"{stem}.dist-info/WHEEL": WHEEL.encode()}
    for file in library.files or []:
        in_info = file.parts[0].endswith(".dist-info")
        if in_info and file.name in KEPT_OF_THIN:
            contents[f"{stem}.dist-info/{file.name}"] = Path(str(file.locate())).read_bytes()
        elif whole and not in_info and not {"..", "__pycache__"} & set(file.parts):
            contents[file.as_posix()] = Path(str(file.locate())).read_bytes()
    record = "".join(f"{name},{digest(data)}\n" for name, data in contents.items())
    contents[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for name, data in contents.items():
            wheel.writestr(name, data)


def digest(data: bytes) -> str:
    hashed = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={hashed},{len(data)}"


def fill(site_packages: Path) -> None:
    """Links the files of every library that pip has installed thin."""
    for info in site_packages.glob("*.dist-info"):
        name = normal(info.name.partition("-")[0])
        marker = info / "filled"
        if name == OURS or (info / "METADATA").is_symlink() or marker.exists():
            continue
        for file in distribution(name).files or []:
            if _is_needed(file):
                link = site_packages / file
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.exists():
                    link.symlink_to(Path(str(file.locate())).resolve())
        marker.touch()


def _is_needed(file: PackagePath) -> bool:
    """True if it is a module, compiled or not, or lies beside them; pip has made the commands."""
    if file.parts[:3] == ("..",) * 3:
        return file.parts[3] in SHARED
    return not file.parts[0].endswith(".dist-info") and ".." not in file.parts
