"""Programs of an image's system that a build may not run on the test's machine, as far as needed.

They change nothing but the folder that EMULATED_ROOT names, and refuse what they do not know.
apt-get brings the machine's own program for a package of the table. Accounts and owners are noted
in files, since only root could make them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(os.environ.get("EMULATED_ROOT", "/nowhere"))
# Packages of Debian that a Dockerfile may ask for, and the programs that they bring.
PACKAGES = {"openjdk-17-jre-headless": "java"}
APT_OPTIONS = {"--yes", "--no-install-recommends"}


def note(file: str, line: str) -> None:
    path = ROOT / file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def apt_get(words: list[str]) -> None:
    lists = ROOT / "var/lib/apt/lists"
    if words == ["update"]:
        lists.mkdir(parents=True)
        (lists / "packages").touch()
        return
    if words[:1] != ["install"] or not any(lists.glob("*")):
        sys.exit(f"apt-get: {words}: no such order, or no update before it")
    for package in set(words[1:]) - APT_OPTIONS:
        if package not in PACKAGES:
            sys.exit(f"apt-get: unable to locate package {package}")
        name = PACKAGES[package]
        found = Path(os.environ.get("EMULATED_JAVA_HOME", "")) / "bin" / name
        program = found if found.exists() else shutil.which(name, path=os.defpath)
        assert program is not None, f"the test's machine has no {name}"
        (ROOT / "usr/bin" / name).symlink_to(Path(program).resolve())


def groupadd(words: list[str]) -> None:
    parser = argparse.ArgumentParser("groupadd")
    parser.add_argument("--gid", type=int, required=True)
    parser.add_argument("name")
    asked = parser.parse_args(words)
    note("etc/group", f"{asked.name}:x:{asked.gid}:")


def useradd(words: list[str]) -> None:
    parser = argparse.ArgumentParser("useradd")
    for option in ("--uid", "--gid"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--create-home", action="store_true")
    parser.add_argument("--shell", required=True)
    parser.add_argument("name")
    asked = parser.parse_args(words)
    groups = (ROOT / "etc/group").read_text(encoding="utf-8")
    assert f":{asked.gid}:" in groups, f"useradd: group {asked.gid} does not exist"
    home = f"/home/{asked.name}"
    note("etc/passwd", f"{asked.name}:x:{asked.uid}:{asked.gid}::{home}:{asked.shell}")
    if asked.create_home:
        (ROOT / home[1:]).mkdir(parents=True)
        note("owners", f"{home} {asked.uid}:{asked.gid}")


def install(words: list[str]) -> None:
    parser = argparse.ArgumentParser("install")
    parser.add_argument("-d", action="store_true", required=True)
    parser.add_argument("-o", type=int, required=True)
    parser.add_argument("-g", type=int, required=True)
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args(words)
    for folder in asked.folders:
        folder.mkdir(parents=True, exist_ok=True)
        note("owners", f"/{folder.relative_to(ROOT)} {asked.o}:{asked.g}")


def chown(words: list[str]) -> None:
    parser = argparse.ArgumentParser("chown")
    parser.add_argument("-R", action="store_true", required=True)
    parser.add_argument("owner")
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(words)
    assert asked.folder.is_dir(), f"chown: {asked.folder} does not exist"
    note("owners", f"/{asked.folder.relative_to(ROOT)} {asked.owner}")


PROGRAMS = {
    "apt-get": apt_get,
    "groupadd": groupadd,
    "useradd": useradd,
    "install": install,
    "chown": chown,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2:])
