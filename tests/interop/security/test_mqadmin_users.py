"""RocketMQ's mqadmin of 5.x changes users and ACLs of a broker of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketpy_broker import BrokerUser, LocalBroker
from tests.interop.rocketmq import V5, V5_3
from tests.interop.security.conftest import REFUSED, SECRETS, TOPIC, Signing, texts

pytestmark = [
    pytest.mark.parametrize("java", [V5, V5_3], indirect=True, scope="module"),
    pytest.mark.usefixtures("topic"),
]
SECRET, LATER = "secret-of-a-new-user", "another-secret-key"
Run = Callable[..., str]


@pytest.fixture
def run(java: Signing) -> Run:
    """Returns a function that runs a command of mqadmin as the admin."""
    return lambda command, *words: java.mqadmin("admin", SECRETS["admin"], command, *words)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalBroker]:
    """Yields a second broker with the same admin alone."""
    admin = BrokerUser("admin", SECRETS["admin"], role="admin")
    with LocalBroker(str(tmp_path), users=[admin]) as started:
        yield started


@pytest.fixture
def name(broker: LocalBroker, java: Signing, run: Run) -> Iterator[str]:
    """Yields a user of this version, without permissions."""
    user, address = f"new-{java.version}", broker.remoting_endpoint
    shown = run("createUser", "-b", address, "-u", user, "-p", SECRET, "-t", "Normal")
    assert f"create user to {address} success." in shown, shown
    yield user
    shown = run("deleteUser", "-b", address, "-u", user)
    assert f"delete user to {address} success." in shown, shown
    assert user not in run("listUser", "-b", address)


def rows(shown: str) -> list[list[str]]:
    """Returns the columns of the lines after each head."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    return [line for line in lines if len(line) > 1 and not line[0].startswith("#")]


def test_mqadmin_changes_users(broker: LocalBroker, run: Run, name: str) -> None:
    address = broker.remoting_endpoint
    assert rows(run("getUser", "-b", address, "-u", name)) == [[name, SECRET, "Normal", "enable"]]
    for option, value in (("-p", LATER), ("-t", "Super"), ("-s", "disable")):
        shown = run("updateUser", "-b", address, "-u", name, option, value)
        assert f"update user to {address} success." in shown, shown
    changed = [name, LATER, "Super", "disable"]
    assert rows(run("getUser", "-c", "DefaultCluster", "-u", name)) == [changed]
    assert rows(run("listUser", "-b", address, "-f", "new-")) == [changed]
    listed = run("listUser", "-c", "DefaultCluster")
    assert {"admin", "writer", "reader", name} == {line[0] for line in rows(listed)}
    assert "exists" in run("createUser", "-b", address, "-u", name, "-p", SECRET)


def test_mqadmin_changes_acls(broker: LocalBroker, java: Signing, run: Run, name: str) -> None:
    where, subject = ("-b", broker.remoting_endpoint), ("-s", f"User:{name}")
    send = ("sendMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-p", "sent")
    assert REFUSED in java.mqadmin(name, SECRET, *send)
    # An ACL of several resources has references to lists, as 5.3 writes it.
    resources = ("-r", f"Topic:{TOPIC},Topic:invoices*")
    shown = run("createAcl", *where, *subject, *resources, "-a", "Pub,Sub", "-d", "Allow")
    assert "create acl to" in shown, shown
    assert "SEND_OK" in java.mqadmin(name, SECRET, *send)
    assert texts(broker) == ["sent"]
    group = ("-r", "Group:billing", "-a", "Sub", "-d", "Allow")
    assert "update acl to" in run("updateAcl", *where, *subject, *group)
    entries = [
        [f"User:{name}", "Custom", "Topic:invoices*", "[Pub, Sub]", "null", "Allow"],
        [f"User:{name}", "Custom", f"Topic:{TOPIC}", "[Pub, Sub]", "null", "Allow"],
        [f"User:{name}", "Custom", "Group:billing", "[Sub]", "null", "Allow"],
    ]
    assert rows(run("getAcl", *where, *subject)) == entries
    assert rows(run("listAcl", "-c", "DefaultCluster", "-s", name, "-r", "Topic:")) == entries[:2]
    denied = ("-r", f"Topic:{TOPIC}", "-a", "All", "-d", "Deny")
    assert "update acl to" in run("updateAcl", *where, *subject, *denied)
    assert REFUSED in java.mqadmin(name, SECRET, *send)
    assert "delete acl to" in run("deleteAcl", *where, *subject, "-r", "Topic:invoices*")
    assert [line[2] for line in rows(run("getAcl", *where, *subject))] == [
        f"Topic:{TOPIC}",
        "Group:billing",
    ]
    assert "delete acl to" in run("deleteAcl", *where, *subject)
    assert rows(run("getAcl", *where, *subject)) == []


def test_mqadmin_copies_users_and_acls(
    broker: LocalBroker, other: LocalBroker, run: Run, name: str
) -> None:
    here, there = broker.remoting_endpoint, other.remoting_endpoint
    grant = ("-r", "Topic:a,Group:g*", "-a", "Pub,Sub", "-d", "Allow")
    assert "create acl to" in run("createAcl", "-b", here, "-s", f"User:{name}", *grant)
    way = ("-f", here, "-t", there)
    for _ in range(2):
        assert f"copy user of {name}" in run("copyUser", *way, "-u", name)
        assert f"copy acl of User:{name}" in run("copyAcl", *way, "-s", f"User:{name}")
    for command, of in (("getUser", ("-u", name)), ("getAcl", ("-s", f"User:{name}"))):
        copied = rows(run(command, "-b", there, *of))
        assert copied == rows(run(command, "-b", here, *of))
        assert copied
    assert "copy user of writer" in run("copyUser", *way)
    assert "copy acl of User:writer" in run("copyAcl", *way)
    assert rows(run("listAcl", "-b", there)) == rows(run("listAcl", "-b", here))


def test_mqadmin_is_refused_by_name(
    broker: LocalBroker, java: Signing, run: Run, name: str
) -> None:
    where = ("-b", broker.remoting_endpoint)
    create = ("createUser", *where, "-u", "refused", "-p", SECRET)
    for user, secret_key in (("writer", SECRETS["writer"]), ("admin", LATER)):
        assert REFUSED in java.mqadmin(user, secret_key, *create)
    grant = ("createAcl", *where, "-s", f"User:{name}", "-r", f"Topic:{TOPIC}")
    for words, problem in (
        (("-a", "Pub", "-d", "Allow", "-i", "10.0.0.0/8"), "sourceIps of resource"),
        (("-a", "Pub", "-d", "Deny"), "is Deny, which only the action All may have"),
        (("-a", "Pub,Get", "-d", "Allow"), "is 'Get', accepted is Pub, Sub, All"),
    ):
        shown = run(*grant, *words)
        assert REFUSED in shown, shown
        assert problem in shown
    assert rows(run("getAcl", *where, "-s", f"User:{name}")) == []
    assert "refused" not in run("listUser", *where)
