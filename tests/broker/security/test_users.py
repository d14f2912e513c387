"""The file of users: its secrets, its changes while the broker runs, and broken files."""

from __future__ import annotations

import stat
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.errors import ConfigFileError
from rocketpy_broker.server.bind_address import PublicBindError
from rocketpy_broker.server.security.errors import UserError, UserNotExistError
from rocketpy_broker.server.security.users import UserTable
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.rocketpy.v1 import admin_pb2, broker_pb2
from tests.support.blocks import wire_block
from tests.support.broker.clients.users import (
    SECRETS,
    TOPIC,
    USERS,
    Secured,
    user,
    users_path,
    write_users,
)
from tests.support.broker.running_broker import StartBroker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Returns the file of some users."""
    found = users_path(tmp_path)
    write_users(found, *USERS)
    return found


def loaded(path: Path) -> UserTable:
    table = UserTable(path)
    table.load()
    return table


def test_users_are_read_as_they_were_written(path: Path) -> None:
    table = loaded(path)
    assert [each.access_key for each in table.messages()] == [
        "admin",
        "monitor",
        "reader",
        "writer",
    ]
    for name, secret in SECRETS.items():
        found = table.get(name)
        assert found is not None
        assert found.secret_key == secret
        assert secret not in repr(found)
    (writer,) = (each for each in table.messages() if each.access_key == "writer")
    assert dict(writer.topic_permissions) == {"orders*": "PUB"}
    assert (writer.default_topic_permission, writer.role, writer.enabled) == ("DENY", "user", True)
    assert not writer.HasField("secret_key")


def test_secrets_are_encrypted_and_both_files_are_private(path: Path) -> None:
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        text = each.read_bytes()
        assert not [secret for secret in SECRETS.values() if secret.encode() in text]
    assert {each.name for each in path.parent.iterdir()} == {
        "users.json",
        "users.key",
        "users.lock",
    }


def test_a_missing_or_public_key_file_is_named(path: Path) -> None:
    key = path.with_suffix(".key")
    key.chmod(0o644)
    with pytest.raises(ConfigFileError, match="run chmod 600"):
        loaded(path)
    key.unlink()
    with pytest.raises(ConfigFileError, match="restore this file"):
        loaded(path)
    write_users(path.with_name("others.json"), user("admin", role="admin"))
    path.with_name("others.key").rename(key)
    with pytest.raises(ConfigFileError, match=r"restore the old users\.key"):
        loaded(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"users": 1}', '{"users": {"a": {}}}'])
async def test_a_broken_file_stops_a_start(
    text: str, path: Path, start_broker: StartBroker
) -> None:
    path.write_text(text, encoding="utf-8")  # noqa: ASYNC240 (a small file)
    with pytest.raises(ConfigFileError, match=r"users\.json cannot be read"):
        async with start_broker():
            pass


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"access_key": ""}, "access key"),
        ({"access_key": "a/b"}, "access key"),
        ({"access_key": "x" * 65}, "access key"),
        ({"secret_key": "short"}, "8 to 256"),
        ({"secret_key": "with a blank"}, "8 to 256"),
        ({"role": "root"}, "accepted is user, monitor, admin"),
        ({"topic_permissions": {"a*b": "PUB"}}, "a prefix and"),
        ({"topic_permissions": {"a": "PUT"}}, "accepted is PUB"),
        ({"default_group_permission": ""}, "accepted is PUB"),
        ({"topic_permissions": {f"t{n}": "PUB" for n in range(1_001)}}, "limit 1000"),
    ],
)
def test_a_user_that_is_not_accepted_changes_nothing(
    fields: dict[str, Any], problem: str, path: Path
) -> None:
    table, before = loaded(path), path.read_bytes()
    with pytest.raises(UserError, match=problem):
        table.update_now(user(**{"access_key": "new", **fields}), create=True)
    assert path.read_bytes() == before
    assert table.get("new") is None


def test_the_last_admin_stays(path: Path) -> None:
    table = loaded(path)
    for change in (
        admin_pb2.User(access_key="admin", role="user"),
        admin_pb2.User(access_key="admin", enabled=False),
    ):
        with pytest.raises(UserError, match="needs an enabled user with the role admin"):
            table.update_now(change, create=False)
    with pytest.raises(UserError, match="role admin"):
        table.remove_now("admin")
    table.update_now(user("second", role="admin"), create=True)
    table.remove_now("admin")
    with pytest.raises(UserNotExistError):
        table.remove_now("admin")
    with pytest.raises(UserError, match="exists"):
        table.update_now(user("second", role="admin"), create=True)


def test_the_first_user_is_an_admin(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="role admin"):
        write_users(users_path(tmp_path), user("writer"))
    assert not users_path(tmp_path).exists()


async def test_a_call_changes_users_at_once(secured: Secured, tmp_path: Path) -> None:
    admin, metadata = secured.running.admin, secured.metadata("admin")
    new = user("bob", topic_permissions={TOPIC: "PUB"})
    request = admin_pb2.UpdateUserRequest(user=new, create=True)
    answer = await admin.UpdateUser(request, metadata=metadata)
    assert answer.status.code == 0, answer.status.remark
    assert not answer.user.HasField("secret_key")
    bob = secured.metadata("bob", "secret-of-bob")
    assert await secured.append(TOPIC, bob) == 0
    removal = admin_pb2.User(access_key="bob", topic_permissions={TOPIC: ""})
    await admin.UpdateUser(admin_pb2.UpdateUserRequest(user=removal), metadata=metadata)
    assert await secured.append(TOPIC, bob) == ResponseCode.NO_PERMISSION
    gone = admin_pb2.DeleteUserRequest(access_key="bob")
    assert (await admin.DeleteUser(gone, metadata=metadata)).status.code == 0
    assert await secured.append(TOPIC, bob) == ResponseCode.UNAUTHENTICATED
    answer = await admin.DeleteUser(gone, metadata=metadata)
    assert answer.status.code == ResponseCode.USER_NOT_EXIST
    listed = await admin.ListUsers(admin_pb2.ListUsersRequest(), metadata=metadata)
    assert [each.access_key for each in listed.users] == [
        each.access_key for each in loaded(users_path(tmp_path)).messages()
    ]
    assert not any(each.HasField("secret_key") for each in listed.users)


def test_programs_that_change_the_file_at_a_time_lose_no_change(path: Path) -> None:
    tables = [loaded(path) for _ in range(4)]

    def add(number: int) -> None:
        for name in (f"first{number}", f"second{number}"):
            tables[number].update_now(user(name), create=True)

    with ThreadPoolExecutor(len(tables)) as threads:
        list(threads.map(add, range(len(tables))))
    added = {f"{name}{number}" for name in ("first", "second") for number in range(4)}
    found = {each.access_key for each in loaded(path).messages()}
    assert found == {*SECRETS, *added}
    with pytest.raises(UserNotExistError):
        tables[0].remove_now("nobody")
    tables[0].remove_now("second3")
    assert loaded(path).get("second3") is None


def test_the_first_users_of_a_file_share_its_key(tmp_path: Path) -> None:
    path = users_path(tmp_path)
    tables = [loaded(path) for _ in range(4)]
    with ThreadPoolExecutor(len(tables)) as threads:
        changes = [user(f"admin{number}", role="admin") for number in range(len(tables))]
        list(threads.map(lambda table, each: table.update_now(each, create=True), tables, changes))
    assert len(loaded(path).messages()) == len(tables)


async def test_a_broker_keeps_a_change_of_the_file_that_it_has_not_seen(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = secured.running.broker.services.access.users
    read = Path.read_bytes

    def read_slowly(path: Path) -> bytes:
        """Lets another program change the file between a read of the broker and its write."""
        found = read(path)
        if path == users.path:
            monkeypatch.undo()
            changing.append(threads.submit(loaded(users_path(tmp_path)).remove_now, "reader"))
        return found

    changing: list[Future[None]] = []
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(Path, "read_bytes", read_slowly)
        await users.update(user("late"), create=True)
    changing[0].result()
    await users.reload()
    names = {each.access_key for each in loaded(users_path(tmp_path)).messages()}
    assert names == {*SECRETS, "late"} - {"reader"}
    assert {each.access_key for each in users.messages()} == names


async def test_a_changed_file_counts_within_a_second(secured: Secured, tmp_path: Path) -> None:
    path, users = users_path(tmp_path), secured.running.broker.services.access.users
    assert await secured.append(TOPIC, secured.metadata("writer")) == 0
    loaded(path).remove_now("writer")
    await users.reload()
    assert await secured.append(TOPIC, secured.metadata("writer")) == ResponseCode.UNAUTHENTICATED


@pytest.mark.parametrize("text", ["{", "{}", '{"users": {"writer": {}}}'])
async def test_a_broken_change_of_the_file_keeps_the_users(
    text: str, secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users_path(tmp_path).write_text(text, encoding="utf-8")
    users = secured.running.broker.services.access.users
    for _ in range(2):
        await users.reload()
    assert await secured.append(TOPIC, secured.metadata("writer")) == 0
    lines = [each for each in caplog.messages if "the users stay as they were" in each]
    assert len(lines) == 1


async def test_an_emptied_file_does_not_open_the_broker(secured: Secured, tmp_path: Path) -> None:
    users_path(tmp_path).unlink()
    await secured.running.broker.services.access.users.reload()
    for metadata in (None, secured.metadata("admin")):
        assert await secured.append(TOPIC, metadata) == ResponseCode.UNAUTHENTICATED


async def test_the_first_user_of_a_running_broker_closes_it(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        assert await running.create_topic("T") == 0
        request = admin_pb2.UpdateUserRequest(user=user("admin", role="admin"), create=True)
        assert (await running.admin.UpdateUser(request)).status.code == 0
        assert await running.create_topic("U") == ResponseCode.UNAUTHENTICATED


async def test_a_public_address_needs_users_or_consent(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(PublicBindError, match="rocketpy user add"):
        async with start_broker(host="0.0.0.0"):
            pass
    write_users(users_path(tmp_path), *USERS)
    async with start_broker(host="0.0.0.0") as running:
        assert running.ready.host == "0.0.0.0"
    assert "without encryption" in caplog.text


async def test_users_of_a_file_of_their_own(start_broker: StartBroker, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "people.json"
    write_users(path, *USERS)
    async with start_broker(users_path=path) as running:
        assert await running.create_topic("T") == ResponseCode.UNAUTHENTICATED


async def test_a_stream_from_before_the_first_user_ends(start_broker: StartBroker) -> None:
    async with start_broker() as running:
        assert await running.create_topic(TOPIC) == 0
        block = wire_block(TOPIC, [b"x"])
        request = broker_pb2.AppendRequest(
            topic=TOPIC, queue_id=0, records=block.records, record_sizes=block.record_sizes
        )
        call = running.data.Append()
        await call.write(request)
        assert (await call.read()).status.code == 0
        first = admin_pb2.UpdateUserRequest(user=user("admin", role="admin"), create=True)
        assert (await running.admin.UpdateUser(first)).status.code == 0
        await call.write(request)
        assert (await call.read()).status.code == ResponseCode.UNAUTHENTICATED
        await call.done_writing()


def _without_writer(path: Path) -> bytes:
    """Writes a part of a file without the writer, and returns the whole."""
    loaded(path).remove_now("writer")
    complete = path.read_bytes()
    path.write_bytes(complete[:100])
    return complete


async def test_a_file_that_is_written_while_it_is_read_is_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, complete = loaded(path), _without_writer(path)
    read = Path.read_bytes

    def early(found: Path) -> bytes:
        monkeypatch.undo()
        half = read(found)
        path.write_bytes(complete)
        return half

    monkeypatch.setattr(Path, "read_bytes", early)
    for _ in range(2):
        await table.reload()
    assert table.get("writer") is None


async def test_a_call_keeps_a_change_of_the_file(path: Path) -> None:
    table = loaded(path)
    loaded(path).remove_now("writer")
    await table.update(user("bob"), create=True)
    loaded(path).remove_now("reader")
    await table.remove("bob")
    assert [each.access_key for each in loaded(path).messages()] == ["admin", "monitor"]
