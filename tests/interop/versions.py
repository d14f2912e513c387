"""A check for newer RocketMQ versions than `make interop` has: `make rocketmq-versions`.

For a maintainer, since it queries Maven's repository. A version counts when the repository has each
artifact of its pom and all their dependencies. Exit code 1 reports a newer one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.interop.rocketmq import VERSIONS

POMS = Path(__file__).parent / "java"
GROUP = "org.apache.rocketmq"
_MAVEN = ("mvn", "-q", "-B", "-U")
_RELEASE = re.compile(r"\d+\.\d+\.\d+")

Number = tuple[int, ...]


def number_of(version: str) -> Number:
    """Returns a version's numbers, such as (5, 3, 3)."""
    return tuple(int(part) for part in version.split("."))


def served(by_artifact: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Returns the artifacts that each release lacks, by version in ascending order."""
    releases = {name: {*filter(_RELEASE.fullmatch, by_artifact[name])} for name in by_artifact}
    versions = sorted(set().union(*releases.values()), key=number_of)
    return {one: [name for name in releases if one not in releases[name]] for one in versions}


def newer(pinned: str, pins: Sequence[str], versions: Iterable[str]) -> list[str]:
    """Returns newer versions than a pinned one, of its line; for the newest pin, of any line."""
    line = number_of(pinned)[:2]
    is_newest = number_of(pinned) == max(map(number_of, pins))
    beyond = [one for one in versions if number_of(one) > number_of(pinned)]
    return [one for one in beyond if is_newest or number_of(one)[:2] == line]


def artifacts_of(pinned: str) -> list[str]:
    """Returns the artifacts that a version's pom names."""
    text = (POMS / pinned / "pom.xml").read_text("utf-8")
    return re.findall(r"<artifactId>(rocketmq-[^<]+)</artifactId>", text)


def versions_of(artifact: str) -> list[str]:
    """Returns all versions of an artifact that the repository reports to Maven."""
    newest = f"-Dartifact={GROUP}:{artifact}:LATEST:pom"
    subprocess.run([*_MAVEN, "dependency:get", newest, "-Dtransitive=false"], check=True)
    folder = Path(_local_repository(), *GROUP.split("."), artifact)
    found = [ET.parse(path) for path in folder.glob("maven-metadata-*.xml")]
    versions = [each.text or "" for tree in found for each in tree.iter("version")]
    if not versions:
        sys.exit(f"reading the versions of {artifact} failed: {folder} has none. Run it again")
    return versions


@cache
def _local_repository() -> str:
    """Returns the folder of Maven's local repository."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        asked = ["help:evaluate", "-Dexpression=settings.localRepository", f"-Doutput={answer}"]
        subprocess.run([*_MAVEN, *asked], check=True)
        return answer.read_text("utf-8").strip()


def is_whole(pinned: str, version: str) -> bool:
    """True if the repository also has all dependencies of a version's artifacts."""
    with tempfile.TemporaryDirectory() as folder:
        pom = Path(folder, "pom.xml")
        text = (POMS / pinned / "pom.xml").read_text("utf-8")
        pom.write_text(text.replace(pinned, version), encoding="utf-8")
        done = subprocess.run([*_MAVEN, "-f", str(pom), "dependency:collect"], check=False)
    return done.returncode == 0


def report() -> Iterator[tuple[str, bool]]:
    """Yields a line for each pinned version and each newer one; true if a pin is outdated."""
    for pinned in VERSIONS:
        lacking = served({name: versions_of(name) for name in artifacts_of(pinned)})
        is_last = True
        for version in newer(pinned, VERSIONS, lacking):
            if lacking[version]:
                yield f"{version} lacks {', '.join(lacking[version])}", False
            elif not is_whole(pinned, version):
                yield f"{version} lacks something that its artifacts need", False
            else:
                is_last = False
                yield f"{version} is served whole and newer than {pinned}", True
        yield f"{pinned} is {'the last one' if is_last else 'outdated'}", False


def main() -> int:
    """Prints the report; returns 1 if a newer version is completely available."""
    if shutil.which("mvn") is None:
        sys.exit("asking for versions failed: mvn is not there. Install Maven")
    is_outdated = False
    for line, is_newer in report():
        sys.stdout.write(f"{line}\n")
        is_outdated = is_outdated or is_newer
    return int(is_outdated)


if __name__ == "__main__":
    sys.exit(main())
