"""The compose file: valid by the specification's schema, and all that it names exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy_proto.proxies import proxy_of
from tests.support.docker.compose_files import (
    CHECKS,
    FOLDER,
    Check,
    Compose,
    Edit,
    check_builds,
    check_credentials,
    check_environment,
    check_ports,
    check_rights,
    check_versions,
    check_volumes,
    check_waits,
    read,
    stage_of,
    validated,
    validated_after,
)

COMPOSE = FOLDER / "docker-compose.yml"


@pytest.fixture
def compose() -> Compose:
    return read(COMPOSE)


def test_it_is_valid_by_the_specification() -> None:
    done = validated(COMPOSE)
    assert done.returncode == 0, done.stdout


def test_the_broker_publishes_each_port_that_its_image_exposes(compose: Compose) -> None:
    broker = compose["services"]["broker"]
    published = {port.split(":")[2] for port in broker["ports"]}
    assert published == {*stage_of(broker).last("EXPOSE").words}


def edit_ports(compose: Compose) -> object:
    return compose["services"]["broker"].update(ports="8081")


def edit_condition(compose: Compose) -> object:
    return compose["services"]["notebooks"]["depends_on"]["broker"].update(condition="soon")


def edit_name(compose: Compose) -> object:
    return compose.update(servicess={})


@pytest.mark.parametrize("edit", [edit_ports, edit_condition, edit_name])
def test_the_schema_finds_what_is_wrong(edit: Edit, compose: Compose, tmp_path: Path) -> None:
    assert validated_after(edit, compose, tmp_path).returncode == 1


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_what_every_compose_file_has_to(check: Check, compose: Compose) -> None:
    check(compose)


def edit_target(compose: Compose) -> object:
    return compose["services"]["broker"]["build"].update(target="brokers")


def edit_address(compose: Compose) -> object:
    return compose["services"]["grafana"].update(ports=["3000:3000"])


def edit_exposed(compose: Compose) -> object:
    return compose["services"]["broker"]["ports"].append("127.0.0.1:8082:8082")


def edit_volume(compose: Compose) -> object:
    return compose["volumes"].pop("data")


def edit_file(compose: Compose) -> object:
    return compose["services"]["prometheus"]["volumes"].append("./none.yml:/none.yml:ro")


def edit_writing(compose: Compose) -> object:
    return compose["services"]["prometheus"]["volumes"].append("./prometheus:/there")


def edit_version(compose: Compose) -> object:
    return compose["services"]["grafana"].update(image="grafana/grafana:latest")


def edit_health(compose: Compose) -> object:
    return compose["services"]["broker"].pop("healthcheck")


def edit_variable(compose: Compose) -> object:
    return compose["services"]["notebooks"]["environment"].update(ROCKETPY_BROKER="broker:8081")


def edit_token(compose: Compose) -> object:
    return compose["services"]["notebooks"]["environment"].update(JUPYTER_TOKEN="secret")


def edit_capabilities(compose: Compose) -> object:
    return compose["services"]["grafana"].pop("cap_drop")


def edit_restart(compose: Compose) -> object:
    return compose["services"]["broker"].update(restart="no")


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (edit_target, check_builds),
        (edit_address, check_ports),
        (edit_exposed, check_ports),
        (edit_volume, check_volumes),
        (edit_file, check_volumes),
        (edit_writing, check_volumes),
        (edit_version, check_versions),
        (edit_health, check_waits),
        (edit_variable, check_environment),
        (edit_token, check_credentials),
        (edit_capabilities, check_rights),
        (edit_restart, check_rights),
    ],
)
def test_each_check_finds_what_is_wrong(edit: Edit, check: Check, compose: Compose) -> None:
    edit(compose)
    with pytest.raises(AssertionError):
        check(compose)


def test_notebooks_and_prometheus_wait_for_the_broker_s_health(compose: Compose) -> None:
    for name in ("notebooks", "prometheus"):
        waits = compose["services"][name]["depends_on"]
        assert waits == {"broker": {"condition": "service_healthy"}}


def test_the_health_check_is_the_image_s(compose: Compose) -> None:
    service = compose["services"]["broker"]
    check, stage = dict(service["healthcheck"]), stage_of(service)
    kind, *command = check.pop("test")
    assert (kind, command) == ("CMD", stage.health_command)
    flags = stage.last("HEALTHCHECK").flags
    assert {name: str(value) for name, value in check.items()} == {
        name.replace("-", "_"): value for name, value in flags.items()
    }


def test_no_proxy_is_asked_for_a_service_beside_it(compose: Compose) -> None:
    for name, variable, asked in (
        ("notebooks", "no_grpc_proxy", "broker"),
        ("grafana", "NO_PROXY", "prometheus"),
    ):
        service = compose["services"][name]
        assert service["environment"][variable] == asked
        assert asked in service["depends_on"]
    environment = {**compose["services"]["notebooks"]["environment"], "http_proxy": "http://p:1"}
    assert proxy_of(environment["ROCKETPY_ENDPOINT"], environment) is None


def test_notebooks_are_given_the_broker_by_its_service(compose: Compose) -> None:
    host, _, port = compose["services"]["notebooks"]["environment"]["ROCKETPY_ENDPOINT"].partition(
        ":"
    )
    assert host in compose["services"]["notebooks"]["depends_on"]
    assert port in stage_of(compose["services"][host]).last("EXPOSE").words
