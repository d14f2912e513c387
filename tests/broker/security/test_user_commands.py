"""`rocketpy user`, as a person uses it, and commands in the name of a user."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocketpy_broker import BrokerUser, LocalBroker, LocalBrokerError
from rocketpy_broker.cli.commands import app
from rocketpy_broker.server.security.errors import NoPermissionError
from rocketpy_broker.server.security.permissions import (
    BROKER,
    Action,
    Permissions,
    Principal,
    Resource,
    Role,
    authorize,
    topic,
)
from rocketpy_broker.server.security.users import UserTable
from tests.support.broker.clients.users import users_path
from tests.support.broker.shell import run

SECRETS = ("secret-of-the-admin", "secret-of-alice")
ADMIN = {"ROCKETPY_ACCESS_KEY": "admin", "ROCKETPY_SECRET_KEY": SECRETS[0]}
ALICE = {"ROCKETPY_ACCESS_KEY": "alice", "ROCKETPY_SECRET_KEY": SECRETS[1]}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Yields a broker with a topic, an admin, and a user that may send and read."""
    users = [
        BrokerUser("alice", SECRETS[1], topics={"orders": "PUB|SUB"}, groups={"readers": "SUB"}),
        BrokerUser("admin", SECRETS[0], role="admin"),
    ]
    with LocalBroker(users=users, http_port=0) as started:
        started.create_topic("orders")
        yield started


def on_folder(folder: Path, *words: str) -> Result:
    """Runs `rocketpy user` on the data directory of a stopped broker."""
    return CliRunner().invoke(app, ["user", *words, "--data", str(folder)])


def test_the_first_admin_is_made_before_the_first_start(tmp_path: Path) -> None:
    shown = on_folder(tmp_path, "add", "root", "--role", "admin", "--json")
    assert shown.exit_code == 0, shown.output
    made = json.loads(shown.output)
    table = UserTable(users_path(tmp_path))
    table.load()
    root = table.get("root")
    assert root is not None
    assert root.secret_key == made["secretKey"]
    assert len(made["secretKey"]) == 43
    listed = on_folder(tmp_path, "list")
    assert listed.output.splitlines() == [
        "access key\trole\tenabled\ttopics\tgroups\tother topics\tother groups",
        "root\tadmin\tyes\t-\t-\tDENY\tDENY",
    ]
    with LocalBroker(tmp_path) as broker, pytest.raises(LocalBrokerError, match="names none"):
        broker.create_topic("T")


def test_users_are_made_changed_and_removed(tmp_path: Path) -> None:
    on_folder(tmp_path, "add", "root", "--role", "admin")
    words = ["add", "bob", "--topic", "orders*=PUB", "--topic", "a=SUB", "--default-group", "SUB"]
    shown = on_folder(tmp_path, *words)
    assert shown.output.startswith("added user bob\nsecret key, which is not shown again: ")
    shown = on_folder(tmp_path, "update", "bob", "--topic", "a=", "--group", "g=ALL", "--disable")
    assert shown.output == "updated user bob\n"
    listed = on_folder(tmp_path, "list", "--json")
    bob = json.loads(listed.output.splitlines()[0])
    assert bob == {
        "accessKey": "bob",
        "role": "user",
        "enabled": False,
        "topicPerms": {"orders*": "PUB"},
        "groupPerms": {"g": "ALL"},
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
    }
    shown = on_folder(tmp_path, "update", "bob", "--draw-secret-key")
    assert "not shown again" in shown.output
    assert on_folder(tmp_path, "remove", "bob").output == "removed user bob\n"
    shown = on_folder(tmp_path, "remove", "root")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("rocketpy: the broker needs an enabled user with the role admin")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "bob", "--topic", "orders"], "NAME=VALUE"),
        (["add", "bob", "--topic", "orders=PUT"], "accepted is PUB"),
        (["add", "bob", "--user-secret-key", "short"], "8 to 256"),
        (["update", "bob"], "does not exist"),
        (["list", "--users", "x.json"], "not both"),
    ],
)
def test_a_wrong_use_is_named(words: list[str], problem: str, tmp_path: Path) -> None:
    on_folder(tmp_path, "add", "root", "--role", "admin")
    shown = on_folder(tmp_path, *words)
    assert shown.exit_code != 0
    assert problem in shown.output


def test_n09_commands_call_in_the_name_of_a_user(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run(broker, "topic", "list")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "names none; set access key and secret key" in refused.stderr
    wrong = run(broker, "--access-key", "alice", "--secret-key", "a-wrong-secret", "topic", "list")
    assert (wrong.exit_code, "not accepted" in wrong.stderr) == (1, True)
    assert "a-wrong-secret" not in wrong.output
    for name, value in ALICE.items():
        monkeypatch.setenv(name, value)
    assert run(broker, "topic", "list").exit_code == 0
    sent = run(broker, "message", "send", "orders", stdin="a first order\n")
    assert sent.exit_code == 0, sent.output
    read = run(broker, "message", "tail", "orders", "--from", "earliest", "--count", "1")
    assert "a first order" in read.output
    refused = run(broker, "user", "list")
    assert (refused.exit_code, "lacks the role admin for" in refused.stderr) == (1, True)


def test_a_running_broker_s_users_are_changed_by_an_admin(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("invoices")
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)
    shown = run(broker, "user", "add", "carol", "--topic", "invoices=PUB", "--json")
    assert shown.exit_code == 0, shown.output
    secret = json.loads(shown.output)["secretKey"]
    listed = run(broker, "user", "list", "--json")
    names = [json.loads(line)["accessKey"] for line in listed.output.splitlines()]
    assert names == ["admin", "alice", "carol"]
    assert secret not in listed.output
    words = ["--access-key", "carol", "--secret-key", secret, "message", "send", "invoices"]
    sent = run(broker, *words, stdin="x\n")
    assert sent.exit_code == 0, sent.output
    assert run(broker, "user", "update", "carol", "--topic", "invoices=DENY").exit_code == 0
    assert run(broker, *words, stdin="x\n").exit_code == 1
    assert run(broker, "user", "remove", "carol", "--yes").exit_code == 0


def test_n09_no_secret_is_written_anywhere(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches the log, all files of the store but the key, the help, and the metrics."""
    for name, value in ALICE.items():
        monkeypatch.setenv(name, value)
    shown = [run(broker, *words).output for words in (["topic", "list"], ["--help"], ["user"])]
    token = base64.b64encode(f"admin:{SECRETS[0]}".encode()).decode()
    url = f"http://{broker.http_endpoint}/metrics"
    asked = urllib.request.Request(url, headers={"Authorization": f"Basic {token}"})
    with urllib.request.urlopen(asked) as answer:
        shown.append(answer.read().decode())
    shown += [broker.log_text(), repr(broker), str(BrokerUser("alice", SECRETS[1]))]
    files = [each for each in broker.data.rglob("*") if each.is_file()]
    assert broker.data / "config" / "users.json" in files
    for secret in SECRETS:
        assert not [text for text in shown if secret in text]
        assert not [each for each in files if secret.encode() in each.read_bytes()]


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, 401),
        ("Basic !", 401),
        ("Bearer x", 401),
        (("admin", "a-wrong-secret"), 401),
        (("stranger", SECRETS[0]), 401),
        (("alice", SECRETS[1]), 403),
        (("admin", SECRETS[0]), 200),
    ],
)
def test_n09_metrics_need_a_monitor_and_health_does_not(
    authorization: str | tuple[str, str] | None, code: int, broker: LocalBroker
) -> None:
    headers = {}
    if isinstance(authorization, tuple):
        text = base64.b64encode(":".join(authorization).encode()).decode()
        headers = {"Authorization": f"Basic {text}"}
    elif authorization is not None:
        headers = {"Authorization": authorization}
    for path, expected in (("/metrics", code), ("/healthz", 200)):
        url = f"http://{broker.http_endpoint}{path}"
        asked = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(asked) as answer:
                found, challenge = answer.status, None
        except urllib.error.HTTPError as error:
            found, challenge = error.code, error.headers["WWW-Authenticate"]
        assert found == expected
        assert (challenge is not None) == (found == 401)


def test_n09_a_copy_of_the_store_has_no_key(tmp_path: Path, broker: LocalBroker) -> None:
    target = tmp_path / "copy"
    words = ["--access-key", "admin", "--secret-key", SECRETS[0], "store", "backup", str(target)]
    shown = run(broker, *words)
    assert shown.exit_code == 0, shown.output
    names = {each.name for each in (target / "config").iterdir()}
    assert "users.json" in names
    assert "users.key" not in names


def test_a_local_broker_needs_an_admin_among_its_users() -> None:
    with pytest.raises(LocalBrokerError, match="role admin"):
        LocalBroker(users=[BrokerUser("alice", SECRETS[1])]).start()


@pytest.mark.parametrize(
    ("action", "resource", "needed"),
    [
        (Action.PUB | Action.SUB, topic("orders"), "permission PUB|SUB for topic 'orders'"),
        (Action.ADMIN, topic("orders"), "permission ALL for topic 'orders'"),
        (Action.ADMIN, BROKER, "role admin for the broker"),
        (Action.MONITOR, BROKER, "role monitor for the broker"),
    ],
)
def test_n09_a_refusal_names_what_user_update_grants(
    action: Action, resource: Resource, needed: str
) -> None:
    nothing = Permissions({})
    alice = Principal("alice", Role.USER, nothing, nothing)
    with pytest.raises(NoPermissionError, match=re.escape(f"'alice' lacks the {needed};")):
        authorize(alice, action, resource)
