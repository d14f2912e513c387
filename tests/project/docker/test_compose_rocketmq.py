"""The compose file of Apache RocketMQ: valid, with consistent services, files and addresses.

tests/interop/test_compose.py tests how a real broker reads its configuration file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.docker.compose_files import (
    CHECKS,
    FOLDER,
    Check,
    Compose,
    Edit,
    check_environment,
    check_ports,
    check_rights,
    check_versions,
    check_volumes,
    check_waits,
    read,
    settings,
    validated,
    validated_after,
)
from tests.support.docker.dockerfile import TOP

COMPOSE = FOLDER / "docker-compose.rocketmq.yml"
# Key under which broker.conf is added to the compose file, so that edits can change it as well.
CONF = "broker.conf"
USER = "3000:3000"
LOGS = "/home/rocketmq/logs"
HEAP_MIB_MAX = 512


@pytest.fixture
def compose() -> Compose:
    return {**read(COMPOSE), CONF: settings((FOLDER / "rocketmq" / CONF).read_text("utf-8"))}


def words(compose: Compose, name: str) -> list[str]:
    """Returns the words of a service's command, also of one for `sh -c`."""
    return " ".join(compose["services"][name]["command"]).split()


def after(option: str, given: list[str]) -> str:
    return given[given.index(option) + 1]


def mounts(compose: Compose, name: str) -> dict[str, str]:
    """Returns the source of each folder that a service mounts."""
    pairs = [volume.split(":")[:2] for volume in compose["services"][name]["volumes"]]
    return {folder: source for source, folder in pairs}


def published(compose: Compose, name: str) -> list[str]:
    """Returns the container's published ports; asserts that the host has the same numbers."""
    ports = [port.split(":") for port in compose["services"][name]["ports"]]
    assert all(outside == inside for _, outside, inside in ports)
    return [inside for *_, inside in ports]


def check_names(compose: Compose) -> None:
    """Asserts that each configured address is a service of this file and its listening port."""
    port = compose[CONF]["listenPort"]
    (name_server,) = published(compose, "namesrv")
    assert compose[CONF]["brokerIP1"] == "broker"
    assert published(compose, "broker") == [port]
    assert after("-b", words(compose, "topic")) == f"broker:{port}"
    told = [after("-n", words(compose, name)) for name in ("broker", "topic")]
    told.append(compose["services"]["notebooks"]["environment"]["ROCKETPY_NAMESERVER"])
    assert set(told) == {f"namesrv:{name_server}"}


def check_health(compose: Compose) -> None:
    """Asserts that a server's health check connects to its listening port."""
    for name in ("namesrv", "broker"):
        command = compose["services"][name]["healthcheck"]["test"]
        assert command[:-1] == ["CMD", "bash", "-c"]
        (port,) = published(compose, name)
        assert command[-1] == f"exec 3<> /dev/tcp/127.0.0.1/{port}"


def check_files(compose: Compose) -> None:
    """Asserts that every file of a command is in a folder that the service mounts."""
    for name in ("namesrv", "broker"):
        named = [word for word in words(compose, name) if word.startswith("/")]
        assert named
        for path in map(Path, named):
            source = mounts(compose, name)[str(path.parent)]
            assert (FOLDER / source / path.name).is_file(), path


def check_stopping(compose: Compose) -> None:
    """Asserts that a script forwards signals to the servers, and that they have time to stop."""
    for name, program in {"namesrv": "mqnamesrv", "broker": "mqbroker"}.items():
        assert words(compose, name)[:4] == ["bash", "/etc/rocketmq/serve.sh", "sh", program]
    grace = compose["services"]["broker"]["stop_grace_period"]
    assert int(grace.removesuffix("s")) >= 30


def check_store(compose: Compose) -> None:
    """Asserts that stores and logs are volumes that the image's user owns at the start."""
    sources = mounts(compose, "broker")
    kept = {sources[compose[CONF]["storePathRootDir"]], sources[LOGS]}
    owner = compose["services"]["owner"]
    command, user, *folders = owner["entrypoint"]
    assert (command, user) == ("chown", USER)
    assert {mounts(compose, "owner")[folder] for folder in folders} == kept
    assert kept <= set(compose["volumes"])
    entered = [owner["working_dir"], *folders]
    assert not any(Path(folder).is_relative_to("/home") for folder in entered)
    assert (owner["user"], owner["cap_add"]) == ("0:0", ["CHOWN"])
    waits = compose["services"]["broker"]["depends_on"]["owner"]
    assert waits == {"condition": "service_completed_successfully"}


def check_powers(compose: Compose) -> None:
    """Asserts that no service but `owner` is root or has a capability."""
    for name, service in compose["services"].items():
        assert name == "owner" or not {"user", "cap_add"} & set(service), name


def check_topic(compose: Compose) -> None:
    """Asserts that the notebooks' topic is created once the broker is healthy, before they run."""
    told = compose["services"]["notebooks"]["environment"]["ROCKETPY_TOPIC"]
    assert after("-t", words(compose, "topic")) == told
    assert compose["services"]["topic"]["depends_on"] == {
        "broker": {"condition": "service_healthy"}
    }
    assert compose["services"]["notebooks"]["depends_on"] == {
        "broker": {"condition": "service_healthy"},
        "topic": {"condition": "service_completed_successfully"},
    }


def check_one_version(compose: Compose) -> None:
    """Asserts that all images have the version that `make interop` compares with."""
    tried = re.search(r"^ROCKETMQS := (\S+)", (TOP / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert tried
    images = {each["image"] for each in compose["services"].values() if "build" not in each}
    assert images == {f"apache/rocketmq:{tried[1]}"}


def check_memory(compose: Compose) -> None:
    """Asserts that heaps fit a laptop."""
    for name in ("namesrv", "broker"):
        options = compose["services"][name]["environment"]["JAVA_OPT_EXT"]
        (heap,) = re.findall(r"-Xmx(\d+)m", options)
        assert int(heap) <= HEAP_MIB_MAX


def check_own_project(compose: Compose) -> None:
    """Asserts that its containers and volumes are apart from the ones of the other file."""
    assert compose["name"] != read(FOLDER / "docker-compose.yml")["name"]


OF_ROCKETMQ: tuple[Check, ...] = (
    check_names,
    check_health,
    check_files,
    check_stopping,
    check_store,
    check_powers,
    check_topic,
    check_one_version,
    check_memory,
    check_own_project,
)


def test_it_is_valid_by_the_specification() -> None:
    done = validated(COMPOSE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("check", [*CHECKS, *OF_ROCKETMQ])
def test_its_parts_fit_together(check: Check, compose: Compose) -> None:
    check(compose)


def service(name: str, **changes: object) -> Edit:
    return lambda compose: compose["services"][name].update(changes)


def variable(name: str, **changes: object) -> Edit:
    return lambda compose: compose["services"][name]["environment"].update(changes)


def conf(**changes: str) -> Edit:
    return lambda compose: compose[CONF].update(changes)


def told(name: str, old: str, new: str) -> Edit:
    """Returns an edit that replaces a word of a service's command."""

    def edit(compose: Compose) -> object:
        command = [word.replace(old, new) for word in compose["services"][name]["command"]]
        return compose["services"][name].update(command=command)

    return edit


def without(name: str, key: str) -> Edit:
    return lambda compose: compose["services"][name].pop(key)


WRONG: tuple[tuple[Edit, Check], ...] = (
    (conf(brokerIP1="127.0.0.1"), check_names),
    (conf(listenPort="10921"), check_names),
    (told("broker", "namesrv:9876", "localhost:9876"), check_names),
    (told("topic", "broker:10911", "broker:10909"), check_names),
    (variable("notebooks", ROCKETPY_NAMESERVER="namesrv:9875"), check_names),
    (service("namesrv", ports=["127.0.0.1:9876:9877"]), check_names),
    (service("broker", ports=["10911:10911"]), check_ports),
    (service("broker", healthcheck={"test": ["CMD", "nc", "-z", "127.0.0.1"]}), check_health),
    (told("broker", "broker.conf", "brokers.conf"), check_files),
    (told("namesrv", "serve.sh", "run.sh"), check_files),
    (service("broker", command=["sh", "mqbroker"]), check_stopping),
    (service("broker", stop_grace_period="10s"), check_stopping),
    (conf(storePathRootDir="/home/rocketmq/store2"), check_store),
    (service("owner", entrypoint=["chown", USER, "/store"]), check_store),
    (service("owner", entrypoint=["chown", "1000:1000", "/store", "/logs"]), check_store),
    (service("broker", volumes=["store:/home/rocketmq/store"]), check_store),
    (without("owner", "working_dir"), check_store),
    (service("owner", volumes=["stores:/store", "logs:/logs"]), check_volumes),
    (service("broker", user="0:0"), check_powers),
    (service("notebooks", cap_add=["ALL"]), check_powers),
    (variable("notebooks", ROCKETPY_TOPIC="other"), check_topic),
    (told("topic", "-t orders", "-t order"), check_topic),
    (service("notebooks", depends_on=["broker"]), check_topic),
    (service("topic", depends_on={"broker": {"condition": "service_started"}}), check_topic),
    (service("broker", image="apache/rocketmq:5.3.2"), check_one_version),
    (service("broker", image="apache/rocketmq"), check_versions),
    (variable("broker", JAVA_OPT_EXT="-Xmx4096m"), check_memory),
    (lambda compose: compose.update(name="rocketpy"), check_own_project),
    (variable("notebooks", ROCKETPY_NAMESRV="namesrv:9876"), check_environment),
    (without("broker", "healthcheck"), check_waits),
    (service("owner", restart="unless-stopped"), check_rights),
    (without("broker", "security_opt"), check_rights),
)


@pytest.mark.parametrize(("edit", "check"), WRONG)
def test_each_check_finds_what_is_wrong(edit: Edit, check: Check, compose: Compose) -> None:
    edit(compose)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(compose)


@pytest.mark.parametrize(
    "edit", [service("broker", ports="10911"), service("owner", cap_add="CHOWN")]
)
def test_the_schema_finds_what_is_wrong(edit: Edit, tmp_path: Path) -> None:
    assert validated_after(edit, read(COMPOSE), tmp_path).returncode == 1


@pytest.mark.parametrize("text", ["a=1\na=2\n", "a\n", "a b=1\n", "a=\n"])
def test_a_setting_is_a_name_and_a_value_and_comes_once(text: str) -> None:
    with pytest.raises(AssertionError):
        settings(text)
