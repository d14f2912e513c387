"""The compose file of a master and its slave: valid, with options that fit together."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_group

from rocketpy_broker.cli.broker.command_group import START
from rocketpy_broker.cli.commands import imported
from tests.support.docker.compose_files import CHECKS, FOLDER, Check, Compose, read, validated

COMPOSE = FOLDER / "docker-compose.replication.yml"
VARIABLE = re.compile(r"\$\{(\w+):-(\w+)\}")


@pytest.fixture
def compose() -> Compose:
    return read(COMPOSE)


def commands() -> dict[str, Any]:
    """Returns the two commands of the file."""
    broker = get_group(imported("broker")).commands["broker"]
    assert isinstance(broker, TyperGroup)
    name_server = get_group(imported("nameserver")).commands["nameserver"]
    return {"broker": broker.commands[START], "nameserver": name_server}


def options(compose: Compose, service: str, **variables: str) -> dict[str, Any]:
    """Returns the options of a service's command, with these variables or their defaults."""
    name, *words = (
        VARIABLE.sub(lambda found: variables.get(found[1], found[2]), word)
        for word in compose["services"][service]["command"]
    )
    return dict(commands()[name].make_context(name, words).params)


def test_it_is_valid_by_the_specification() -> None:
    done = validated(COMPOSE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_what_every_compose_file_has_to(check: Check, compose: Compose) -> None:
    check(compose)


def test_its_containers_and_volumes_are_its_own(compose: Compose) -> None:
    others = [path for path in FOLDER.glob("*.yml") if path != COMPOSE]
    assert compose["name"] not in {read(path)["name"] for path in others}


def test_the_brokers_differ_in_their_role_and_address_alone(compose: Compose) -> None:
    first, second = (options(compose, name) for name in ("broker1", "broker2"))
    differing = {name: (first[name], second[name]) for name in first if first[name] != second[name]}
    assert differing == {
        "broker_role": ("SYNC_MASTER", "SLAVE"),
        "advertise_host": ("broker1", "broker2"),
    }
    assert first["ha_port"] is not None


def test_a_variable_makes_the_old_master_a_slave(compose: Compose) -> None:
    assert options(compose, "broker1", BROKER1_ROLE="SLAVE")["broker_role"] == "SLAVE"
    assert options(compose, "broker2", BROKER2_ROLE="SYNC_MASTER")["broker_role"] == "SYNC_MASTER"


def test_both_register_at_the_name_server(compose: Compose) -> None:
    port = options(compose, "namesrv")["port"]
    assert compose["services"]["namesrv"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"'127.0.0.1', {port}" in compose["services"]["namesrv"]["healthcheck"]["test"][-1]
    for name in ("broker1", "broker2"):
        found = options(compose, name)
        assert (found["name_server"], found["name_server_port"]) == (f"namesrv:{port}", 0)


def test_a_brokers_health_check_is_that_of_the_other_file(compose: Compose) -> None:
    (broker,) = (
        each["healthcheck"]
        for name, each in read(FOLDER / "docker-compose.yml")["services"].items()
        if name == "broker"
    )
    for name in ("broker1", "broker2"):
        assert compose["services"][name]["healthcheck"] == broker
