"""`rocketpy client`, as a person uses it."""

from __future__ import annotations

import json

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.client.connection import BrokerConnection
from rocketpy_broker.client.groups import consumer, heartbeat
from tests.support.broker.shell import run


@pytest.fixture
def group(rocketpy_broker: LocalBroker) -> str:
    """Returns the name of a group with two clients."""
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        heartbeat(connection, "cli-2", consumers=[consumer("cli-group")])
        heartbeat(
            connection, "cli-1", consumers=[consumer("cli-group")], producer_groups=["cli-group"]
        )
    return "cli-group"


def test_g03_clients_are_listed_by_what_they_do(rocketpy_broker: LocalBroker, group: str) -> None:
    shown = run(rocketpy_broker, "client", "list", "--group", group)
    assert shown.exit_code == 0
    head, *rows = [line.split("\t") for line in shown.output.splitlines()]
    assert head == ["group", "role", "client", "address", "last heartbeat"]
    assert [row[:3] for row in rows] == [
        [group, "consumer", "cli-1"],
        [group, "consumer", "cli-2"],
        [group, "producer", "cli-1"],
    ]
    assert all(row[3].startswith("127.0.0.1:") and row[4].endswith("Z") for row in rows)


def test_g03_clients_are_listed_as_json(rocketpy_broker: LocalBroker, group: str) -> None:
    shown = run(rocketpy_broker, "client", "list", "--group", group, "--json")
    rows = [json.loads(line) for line in shown.output.splitlines()]
    assert [(row["role"], row["clientId"]) for row in rows] == [
        ("consumer", "cli-1"),
        ("consumer", "cli-2"),
        ("producer", "cli-1"),
    ]
    assert rows[0].keys() == {"group", "role", "clientId", "address", "lastUpdateTimestamp"}


def test_g03_a_group_without_clients_is_told_as_such(rocketpy_broker: LocalBroker) -> None:
    shown = run(rocketpy_broker, "client", "list", "--group", "nobody")
    assert shown.exit_code == 0
    assert shown.stdout == "group\trole\tclient\taddress\tlast heartbeat\n"
    assert shown.stderr == "rocketpy: group 'nobody' has no clients at this broker\n"
    as_json = run(rocketpy_broker, "client", "list", "--group", "nobody", "--json")
    assert (as_json.exit_code, as_json.stdout) == (0, "")


def test_g03_a_bad_group_is_refused_in_one_line(rocketpy_broker: LocalBroker) -> None:
    shown = run(rocketpy_broker, "client", "list", "--group", "a b")
    assert shown.exit_code == 1
    assert "consumer_group is 'a b'" in shown.output
    assert "Traceback" not in shown.output


def test_g03_clients_of_all_groups_are_listed(rocketpy_broker: LocalBroker, group: str) -> None:
    with BrokerConnection(rocketpy_broker.endpoint) as connection:
        heartbeat(connection, "cli-3", consumers=[consumer("cli-other")])
    shown = run(rocketpy_broker, "client", "list").stdout.splitlines()
    rows = [line.split("\t")[:3] for line in shown[1:]]
    assert [group, "consumer", "cli-1"] in rows
    assert [group, "producer", "cli-1"] in rows
    assert ["cli-other", "consumer", "cli-3"] in rows
    told = run(rocketpy_broker, "client", "list", "--json").stdout.splitlines()
    assert [json.loads(line)["clientId"] for line in told] == [row[2] for row in rows]


def test_g03_a_broker_without_clients_says_so() -> None:
    with LocalBroker() as broker:
        shown = run(broker, "client", "list")
    assert (shown.exit_code, shown.stdout.count("\n")) == (0, 1)
    assert shown.stderr == "rocketpy: this broker has no clients that send heartbeats\n"
