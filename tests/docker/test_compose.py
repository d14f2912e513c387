"""The compose file: valid by the specification's schema, and each thing it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.dockerfile import TOP, Stage, stages

COMPOSE = TOP / "docker" / "docker-compose.yml"
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return content


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    """Check by the schema that comes with check-jsonschema; nothing is fetched."""
    words = ["--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def stage_of(service: dict[str, Any]) -> Stage:
    return stages()[service["build"]["target"]]


def ours(compose: dict[str, Any]) -> list[dict[str, Any]]:
    """The services whose images are built here."""
    return [each for each in compose["services"].values() if "build" in each]


def others(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services whose images are fetched."""
    return {name: each for name, each in compose["services"].items() if "build" not in each}


def test_it_is_valid_by_the_specification() -> None:
    done = validated(COMPOSE)
    assert done.returncode == 0, done.stdout


def edit_ports(compose: dict[str, Any]) -> object:
    return compose["services"]["broker"].update(ports="8081")


def edit_condition(compose: dict[str, Any]) -> object:
    return compose["services"]["notebooks"]["depends_on"]["broker"].update(condition="soon")


def edit_name(compose: dict[str, Any]) -> object:
    return compose.update(servicess={})


@pytest.mark.parametrize("edit", [edit_ports, edit_condition, edit_name])
def test_the_schema_finds_what_is_wrong(
    edit: Edit, compose: dict[str, Any], tmp_path: Path
) -> None:
    edit(compose)
    path = tmp_path / "compose.yml"
    path.write_text(yaml.safe_dump(compose), encoding="utf-8")
    assert validated(path).returncode == 1


def test_every_build_names_a_stage_and_a_context_that_are_there(compose: dict[str, Any]) -> None:
    for service in ours(compose):
        build = service["build"]
        context = (COMPOSE.parent / build["context"]).resolve()
        assert context == TOP
        assert (context / build["dockerfile"]) == TOP / "docker" / "Dockerfile"
        assert build["target"] in stages()


def test_ports_are_published_on_loopback_only_and_are_exposed(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    for service in ours(compose):
        for port in service["ports"]:
            assert port.split(":")[2] in stage_of(service).last("EXPOSE").words


def test_every_volume_is_declared_used_and_one_of_the_image(compose: dict[str, Any]) -> None:
    used = set()
    for service in ours(compose):
        for volume in service["volumes"]:
            name, folder = volume.split(":")
            assert folder in stage_of(service).last("VOLUME").words
            used.add(name)
    for service in others(compose).values():
        for volume in service["volumes"]:
            name, _, *how = volume.split(":")
            if name.startswith("."):
                assert (COMPOSE.parent / name).exists()
                assert how == ["ro"]
            else:
                used.add(name)
    assert used == set(compose["volumes"])


def test_an_image_that_is_fetched_has_a_version(compose: dict[str, Any]) -> None:
    for name, service in others(compose).items():
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_who_waits_for_health_waits_for_a_service_that_tells_it(compose: dict[str, Any]) -> None:
    waits = 0
    for service in compose["services"].values():
        depends_on = service.get("depends_on", {})
        assert set(depends_on) <= set(compose["services"])
        for name, wanted in depends_on.items() if isinstance(depends_on, dict) else ():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in compose["services"][name]
                waits += 1
    assert waits == 2


def test_the_health_check_is_the_image_s(compose: dict[str, Any]) -> None:
    service = compose["services"]["broker"]
    check, stage = dict(service["healthcheck"]), stage_of(service)
    kind, *command = check.pop("test")
    assert (kind, command) == ("CMD", stage.health_command)
    flags = stage.last("HEALTHCHECK").flags
    assert {name: str(value) for name, value in check.items()} == {
        name.replace("-", "_"): value for name, value in flags.items()
    }


def test_every_name_in_the_environment_is_read(compose: dict[str, Any]) -> None:
    folders = [TOP / "broker_emulator", TOP / "notebooks"]
    folders.append(Path(str(distribution("jupyter_server").locate_file("jupyter_server/auth"))))
    texts = [path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py")]
    for service in ours(compose):
        for name in service.get("environment", {}):
            read = f'"{name}"'
            parameter = f'parameter("{name.removeprefix("ROCKETPY_").lower()}"'
            assert any(read in text or parameter in text for text in texts), name


def test_notebooks_are_given_the_broker_by_its_service(compose: dict[str, Any]) -> None:
    host, _, port = compose["services"]["notebooks"]["environment"]["ROCKETPY_ENDPOINT"].partition(
        ":"
    )
    assert host in compose["services"]["notebooks"]["depends_on"]
    assert port in stage_of(compose["services"][host]).last("EXPOSE").words


def test_no_credential_is_in_the_file(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("TOKEN|PASSWORD|SECRET|KEY", name):
                assert value is None, f"{name} has to be passed on, not set"


def test_every_service_comes_back_and_gets_no_more_rights(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert service["restart"] == "unless-stopped"
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
