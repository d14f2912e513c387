"""Compose files and the checks of each; a check fails with AssertionError."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from tests.support.docker.dockerfile import TOP, Stage, stages

FOLDER = TOP / "docker"
Compose = dict[str, Any]
Edit = Callable[[Compose], object]
Check = Callable[[Compose], object]
# A notebook's request for the variable ROCKETPY_<NAME>, which `surroundings.py` reads.
PARAMETER = r'\bparameter\("(\w+)"'


def read(path: Path) -> Compose:
    """Returns a compose file's content."""
    content: Compose = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def settings(text: str) -> dict[str, str]:
    """Parses Java properties as in broker.conf: comments, and `name=value` once for each name."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [line.partition("=") for line in lines]
    assert all(name.isalnum() and value for name, _, value in pairs)
    found = {name: value for name, _, value in pairs}
    assert len(found) == len(pairs)
    return found


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    """Validates a file by the schema that check-jsonschema contains; nothing is downloaded."""
    words = ["--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def validated_after(edit: Edit, compose: Compose, folder: Path) -> subprocess.CompletedProcess[str]:
    """Validates an edited file, which is written to `folder`."""
    edit(compose)
    path = folder / "compose.yml"
    path.write_text(yaml.safe_dump(compose), encoding="utf-8")
    return validated(path)


def stage_of(service: Compose) -> Stage:
    """Returns the stage of the Dockerfile that builds a service's image."""
    return stages()[service["build"]["target"]]


def ours(compose: Compose) -> list[Compose]:
    """Returns the services with an image that is built here."""
    return [each for each in compose["services"].values() if "build" in each]


def others(compose: Compose) -> dict[str, Compose]:
    """Returns the services with an image that is pulled."""
    return {name: each for name, each in compose["services"].items() if "build" not in each}


def staying(compose: Compose) -> dict[str, Compose]:
    """Returns the services that keep running; other services wait until the rest have completed."""
    once = {
        name
        for each in compose["services"].values()
        for name, wanted in _waits(each).items()
        if wanted == "service_completed_successfully"
    }
    return {name: each for name, each in compose["services"].items() if name not in once}


def check_builds(compose: Compose) -> None:
    """Asserts that every build names a stage and a context that exist."""
    for service in ours(compose):
        build = service["build"]
        context = (FOLDER / build["context"]).resolve()
        assert context == TOP
        assert (context / build["dockerfile"]) == FOLDER / "Dockerfile"
        assert build["target"] in stages()


def check_ports(compose: Compose) -> None:
    """Asserts that ports are published on loopback only and that our images expose them."""
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    for service in ours(compose):
        for port in service["ports"]:
            assert port.split(":")[2] in stage_of(service).last("EXPOSE").words


def check_volumes(compose: Compose) -> None:
    """Asserts that each volume is declared, used and the image's; host folders are read-only."""
    used = set()
    for service in ours(compose):
        for volume in service.get("volumes", ()):
            name, folder = volume.split(":")
            assert folder in stage_of(service).last("VOLUME").words
            used.add(name)
    for service in others(compose).values():
        for volume in service.get("volumes", ()):
            name, _, *how = volume.split(":")
            if name.startswith("."):
                assert (FOLDER / name).exists()
                assert how == ["ro"]
            else:
                used.add(name)
    assert used == set(compose["volumes"])


def check_versions(compose: Compose) -> None:
    """Asserts that each pulled image has a version."""
    for name, service in others(compose).items():
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", service["image"]), name


def check_waits(compose: Compose) -> None:
    """Asserts that a service waits for the health only of a service with a health check."""
    for service in compose["services"].values():
        for name, wanted in _waits(service).items():
            assert name in compose["services"]
            assert wanted != "service_healthy" or "healthcheck" in compose["services"][name]


def check_environment(compose: Compose) -> None:
    """Asserts that our programs or Jupyter read each variable that our services set."""
    folders = [TOP / "broker_emulator", TOP / "notebooks", TOP / "proto"]
    folders.append(Path(str(distribution("jupyter_server").locate_file("jupyter_server/auth"))))
    texts = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")]
    parameters = {
        f"ROCKETPY_{name.upper()}" for text in texts for name in re.findall(PARAMETER, text)
    }
    for service in ours(compose):
        for name in service.get("environment", {}):
            assert name in parameters or any(f'"{name}"' in text for text in texts), name


def check_credentials(compose: Compose) -> None:
    """Asserts that no credential is in the file."""
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD|SECRET|KEY", name):
                assert value is None, f"{name} has to be passed on, not set"


def check_rights(compose: Compose) -> None:
    """Asserts that no service has needless rights and that long-running services restart."""
    for name, service in compose["services"].items():
        assert service.get("restart") == ("unless-stopped" if name in staying(compose) else "no")
        assert service.get("cap_drop") == ["ALL"]
        assert service.get("security_opt") == ["no-new-privileges:true"]
        assert "privileged" not in service


CHECKS: tuple[Check, ...] = (
    check_builds,
    check_ports,
    check_volumes,
    check_versions,
    check_waits,
    check_environment,
    check_credentials,
    check_rights,
)


def _waits(service: Compose) -> dict[str, str]:
    """Returns the condition that each dependency has to meet before this service starts."""
    depends_on = service.get("depends_on", {})
    if isinstance(depends_on, dict):
        return {name: wanted["condition"] for name, wanted in depends_on.items()}
    return dict.fromkeys(depends_on, "service_started")
