"""Users by RocketMQ's requests, over the one file of users."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.server.remoting.processors.auth.processor import AuthProcessor
from rocketpy_broker.server.security.errors import NoUsersError
from rocketpy_broker.server.security.users import UserTable
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import signed
from rocketpy_proto.remoting.headers.auth import (
    AclRequest,
    DeleteAclRequest,
    ListUsersRequest,
    UserRequest,
)
from rocketpy_proto.remoting.headers.topics import TopicRequest
from tests.broker.remoting.users.auth_requests import (
    BODIES,
    NO,
    REQUESTS,
    SECRET,
    acl,
    asked,
    done,
    entry,
    found,
    granted,
)
from tests.support.broker.clients.remoting_client import RemotingBroker
from tests.support.broker.clients.users import SECRETS, TOPIC, Secured, user, users_path

# --- Changes ---


async def test_a_user_is_created_changed_and_deleted(secured: Secured) -> None:
    header = UserRequest("new")
    assert await found(secured, Code.AUTH_GET_USER, header) is None
    await done(secured, Code.AUTH_CREATE_USER, header, {"username": "new", "password": SECRET})
    shown = {"username": "new", "password": SECRET, "userType": "Normal", "userStatus": "enable"}
    assert await found(secured, Code.AUTH_GET_USER, header) == shown
    grant = acl(entry("Topic:orders*", "Sub"), subject="User:new")
    await done(secured, Code.AUTH_CREATE_ACL, AclRequest("User:new"), grant)
    for change, field in (
        ({"password": "another-secret"}, ("password", "another-secret")),
        ({"userType": "super"}, ("userType", "Super")),
        ({"userType": "Monitor", "password": " "}, ("userType", "Monitor")),
        ({"userStatus": "DISABLE", "password": ""}, ("userStatus", "disable")),
    ):
        await done(secured, Code.AUTH_UPDATE_USER, header, change)
        shown |= [field]
        assert await found(secured, Code.AUTH_GET_USER, header) == shown
    assert (await granted(secured, "new"))["topics"] == {"orders*": "SUB"}
    await done(secured, Code.AUTH_DELETE_USER, header)
    await done(secured, Code.AUTH_DELETE_USER, header)
    assert await found(secured, Code.AUTH_GET_USER, header) is None
    # A user with this name has none of the former permissions.
    await done(secured, Code.AUTH_CREATE_USER, header, {"password": SECRET})
    assert await found(secured, Code.AUTH_GET_ACL, AclRequest("User:new")) is None


async def test_a_created_user_signs_requests_and_a_disabled_one_does_not(secured: Secured) -> None:
    await done(secured, Code.AUTH_CREATE_USER, UserRequest("new"), {"password": SECRET})
    grant = acl(entry(f"Topic:{TOPIC}", "Sub"), subject="User:new")
    await done(secured, Code.AUTH_CREATE_ACL, AclRequest("User:new"), grant)

    async def code() -> int:
        command = secured.command(Code.GET_TOPIC_STATS_INFO, TopicRequest(TOPIC))
        return (await secured.answer(signed(command, "new", SECRET))).code

    assert await code() == 0
    await done(secured, Code.AUTH_DELETE_ACL, DeleteAclRequest("User:new"))
    assert await code() == NO
    await done(secured, Code.AUTH_UPDATE_ACL, AclRequest("User:new"), grant)
    await done(secured, Code.AUTH_UPDATE_USER, UserRequest("new"), {"userStatus": "disable"})
    assert await code() == NO


async def test_users_are_listed_by_a_part_of_their_names(secured: Secured) -> None:
    for part, names in (
        (None, ["admin", "monitor", "reader", "writer"]),
        ("er", ["reader", "writer"]),
    ):
        listed = await found(secured, Code.AUTH_LIST_USER, ListUsersRequest(part))
        assert [each["username"] for each in listed] == names
    types = {
        each["username"]: each["userType"] for each in await found(secured, Code.AUTH_LIST_USER)
    }
    assert types == {"admin": "Super", "monitor": "Monitor", "reader": "Normal", "writer": "Normal"}
    assert await found(secured, Code.AUTH_LIST_USER, ListUsersRequest("none")) is None


@pytest.mark.parametrize(
    ("code", "name", "body", "answered", "problem"),
    [
        (Code.AUTH_CREATE_USER, "writer", {"password": SECRET}, NO, "'writer' exists"),
        (Code.AUTH_CREATE_USER, "new", {"password": " "}, NO, "needs a secret key"),
        (Code.AUTH_CREATE_USER, "new", {"password": "short"}, NO, "use 8 to 256"),
        (Code.AUTH_CREATE_USER, "a/b", {"password": SECRET}, NO, "access key 'a/b', accepted"),
        (Code.AUTH_CREATE_USER, "new", {"password": f"\ud800{SECRET}"}, 1, "UserInfo"),
        (
            *(Code.AUTH_CREATE_USER, "new", {"password": SECRET, "userType": "Root"}, NO),
            "userType is 'Root', accepted is Super, Normal, Monitor",
        ),
        (Code.AUTH_CREATE_USER, " ", {"password": SECRET}, 29, "username is ' '"),
        (Code.AUTH_CREATE_USER, None, {"password": SECRET}, 29, "username is ''"),
        (Code.AUTH_CREATE_USER, "new", None, 1, "UserInfo"),
        (Code.AUTH_CREATE_USER, "new", {"password": 1}, 1, "UserInfo"),
        (Code.AUTH_CREATE_USER, "new", {"password": "x" * (513 << 10)}, 29, "bytes of the body"),
        (Code.AUTH_UPDATE_USER, "new", {"password": SECRET}, NO, "'new' does not exist"),
        (
            *(Code.AUTH_UPDATE_USER, "writer", {"userStatus": "off"}, NO),
            "userStatus is 'off', accepted is enable, disable",
        ),
        (Code.AUTH_UPDATE_USER, "admin", {"userType": "Normal"}, NO, "needs an enabled user"),
        (Code.AUTH_UPDATE_USER, "", {}, 29, "username"),
        (Code.AUTH_DELETE_USER, "admin", None, NO, "needs an enabled user with the role admin"),
        (Code.AUTH_DELETE_USER, None, None, 29, "username"),
        (Code.AUTH_GET_USER, None, None, 29, "username"),
    ],
)
async def test_a_change_of_a_user_that_is_not_accepted_changes_nothing(
    code: Code,
    name: str | None,
    body: object,
    answered: int,
    problem: str,
    secured: Secured,
    tmp_path: Path,
) -> None:
    before = users_path(tmp_path).read_bytes()
    answer = await asked(secured, code, UserRequest(name), body)
    assert answer.code == answered, answer.remark
    assert problem in (answer.remark or "")
    assert SECRET not in (answer.remark or "")
    assert users_path(tmp_path).read_bytes() == before


# --- Access ---


@pytest.mark.parametrize("code", REQUESTS)
async def test_only_an_admin_may_see_and_change_users(
    code: Code, secured: Secured, tmp_path: Path
) -> None:
    before = users_path(tmp_path).read_bytes()
    body = json.dumps(BODIES[code]).encode() if code in BODIES else b""
    answers = [
        await secured.ask(name, code, REQUESTS[code], body) for name in ("writer", "monitor")
    ]
    answers.append(await secured.answer(secured.command(code, REQUESTS[code], body)))
    for answer in answers:
        assert (answer.code, bytes(answer.body)) == (NO, b""), answer.remark
    assert users_path(tmp_path).read_bytes() == before


@pytest.mark.parametrize("code", REQUESTS)
async def test_a_broker_without_users_refuses_them(
    code: Code, remoting: RemotingBroker, tmp_path: Path
) -> None:
    body = json.dumps(BODIES[code]).encode() if code in BODIES else b""
    answer = await remoting.client.ask(code, REQUESTS[code], body)
    assert (answer.code, bytes(answer.body)) == (ResponseCode.SYSTEM_ERROR, b"")
    assert "the broker has no users; add the first one" in (answer.remark or "")
    assert not users_path(tmp_path).exists()


def test_users_that_come_during_an_unsigned_request_do_not_admit_it(tmp_path: Path) -> None:
    """Checks that the processor refuses before its first wait, as the server checks signatures."""
    processor = AuthProcessor(UserTable(users_path(tmp_path))).by_code()[Code.AUTH_LIST_USER]
    request: Any = None
    with pytest.raises(NoUsersError):
        processor(request)


async def test_each_change_is_logged_with_its_user_and_without_a_secret(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    named = {
        Code.AUTH_CREATE_USER: "user 'new'",
        Code.AUTH_LIST_USER: "the broker",
        Code.AUTH_LIST_ACL: "the broker",
    }
    for code in REQUESTS:
        assert (await asked(secured, code, None, BODIES.get(code))).code == 0
    for broken in (f'{{"password": "{SECRET}"', f'{{"password": "{SECRET}", "userType": 1}}'):
        header = UserRequest("new")
        answer = await secured.ask("admin", Code.AUTH_UPDATE_USER, header, broken.encode())
        assert (answer.code, SECRET in (answer.remark or "")) == (1, False)
    lines = [each.getMessage() for each in caplog.records if each.name.endswith(".audit")]
    for code, line in zip(REQUESTS, lines, strict=False):
        resource = named.get(code, "user 'writer'")
        assert line.startswith(
            f"user admin requested {code.name} of {resource} from ipv4:127.0.0.1:"
        )
    assert len(lines) == len(REQUESTS) + 2
    for secret in (SECRET, *SECRETS.values()):
        assert secret not in caplog.text


# --- Other programs ---


async def test_a_change_by_the_command_is_seen_at_once(secured: Secured, tmp_path: Path) -> None:
    table = UserTable(users_path(tmp_path))
    await asyncio.to_thread(table.update_now, user("by-command"), create=True)
    shown = await found(secured, Code.AUTH_GET_USER, UserRequest("by-command"))
    assert shown["password"] == "secret-of-by-command"
    change = user("writer", topic_permissions={"added": "PUB"})
    await asyncio.to_thread(table.update_now, change, create=False)
    await done(secured, Code.AUTH_DELETE_ACL)
    assert (await granted(secured))["topics"] == {}


async def test_changes_by_requests_and_by_commands_are_all_kept(
    secured: Secured, tmp_path: Path
) -> None:
    def command(number: int) -> None:
        table = UserTable(users_path(tmp_path))
        table.update_now(user(f"command-{number}"), create=True)
        change = user("writer", topic_permissions={f"command-{number}": "SUB"})
        table.update_now(change, create=False)

    commands = [asyncio.create_task(asyncio.to_thread(command, number)) for number in range(8)]
    for number in range(8):
        name = f"request-{number}"
        await done(secured, Code.AUTH_CREATE_USER, UserRequest(name), {"password": SECRET})
        await done(secured, Code.AUTH_CREATE_ACL, None, acl(entry(f"Topic:{name}", "Pub")))
    await asyncio.gather(*commands)
    listed = {each["username"] for each in await found(secured, Code.AUTH_LIST_USER)}
    wanted = {f"{kind}-{number}" for kind in ("command", "request") for number in range(8)}
    assert wanted <= listed
    assert set((await granted(secured))["topics"]) == wanted | {"orders*"}
