"""Users and ACLs by RocketMQ's requests, over the one file of users."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rocketpy_broker.server.remoting.processors.auth.auth_processor import AuthProcessor
from rocketpy_broker.server.security.errors import NoUsersError
from rocketpy_broker.server.security.users import UserTable
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import Header, RemotingCommand, signed
from rocketpy_proto.remoting.headers.auth import (
    AclRequest,
    DeleteAclRequest,
    ListAclsRequest,
    ListUsersRequest,
    UserRequest,
)
from rocketpy_proto.remoting.headers.topics import TopicRequest
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.remoting_client import RemotingBroker
from tests.support.broker.users import SECRETS, TOPIC, Secured, user, users_path

NO = ResponseCode.NO_PERMISSION
SECRET = "secret-of-the-new-user"
REQUESTS: dict[Code, Header] = {
    Code.AUTH_CREATE_USER: UserRequest("new"),
    Code.AUTH_UPDATE_USER: UserRequest("writer"),
    Code.AUTH_GET_USER: UserRequest("writer"),
    Code.AUTH_LIST_USER: ListUsersRequest(),
    Code.AUTH_CREATE_ACL: AclRequest("User:writer"),
    Code.AUTH_UPDATE_ACL: AclRequest("User:writer"),
    Code.AUTH_DELETE_ACL: DeleteAclRequest("User:writer"),
    Code.AUTH_GET_ACL: AclRequest("User:writer"),
    Code.AUTH_LIST_ACL: ListAclsRequest(),
    Code.AUTH_DELETE_USER: UserRequest("writer"),
}
BODIES: dict[Code, object] = {
    Code.AUTH_CREATE_USER: {"username": "new", "password": SECRET},
    Code.AUTH_UPDATE_USER: {"userStatus": "disable"},
}


def entry(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


def acl(*entries: object, subject: str = "User:writer", kind: str | None = None) -> dict[str, Any]:
    policy: dict[str, Any] = {"entries": list(entries)}
    if kind is not None:
        policy["policyType"] = kind
    return {"subject": subject, "policies": [policy]}


GRANT = acl(entry("Topic:granted", "Pub"))
for granting in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
    BODIES[granting] = GRANT


async def asked(
    secured: Secured, code: Code, header: Header | None = None, body: object = None
) -> RemotingCommand:
    """Returns the answer to a request of the admin."""
    data = b"" if body is None else json.dumps(body).encode()
    return await secured.ask("admin", code, header or REQUESTS[code], data)


async def found(secured: Secured, code: Code, header: Header | None = None) -> Any:
    """Returns the body of a successful answer, or None."""
    answer = await asked(secured, code, header)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(bytes(answer.body)) if answer.body else None


async def done(
    secured: Secured, code: Code, header: Header | None = None, body: Any = None
) -> None:
    """Raises AssertionError unless the request succeeds, with an empty answer."""
    answer = await asked(secured, code, header, body)
    assert (answer.code, answer.remark, bytes(answer.body)) == (ResponseCode.SUCCESS, None, b"")


async def granted(secured: Secured, name: str = "writer") -> dict[str, Any]:
    """Returns a user's permissions, as `rocketpy user list` shows them."""
    metadata = secured.metadata("admin")
    answer = await secured.running.admin.ListUsers(admin_pb2.ListUsersRequest(), metadata=metadata)
    (each,) = (each for each in answer.users if each.access_key == name)
    return {
        "topics": dict(each.topic_permissions),
        "groups": dict(each.group_permissions),
        "defaults": (each.default_topic_permission, each.default_group_permission),
    }


# --- Users ---


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


# --- ACLs ---


@pytest.mark.parametrize(
    ("given", "permission"),
    [
        (entry("Topic:a", "Pub"), {"topics": {"a": "PUB"}}),
        (entry("topic:a", "sub", decision="allow"), {"topics": {"a": "SUB"}}),
        (entry("Topic:a*", "Pub", "Sub"), {"topics": {"a*": "PUB|SUB"}}),
        (entry("Topic:*", "All"), {"topics": {"*": "ALL"}}),
        (entry("Topic:a", "All", decision="Deny"), {"topics": {"a": "DENY"}}),
        (entry("Group:a", "Sub", sourceIps=None), {"groups": {"a": "SUB"}}),
        (entry("Group:a*", "All", "Pub"), {"groups": {"a*": "ALL"}}),
    ],
)
async def test_an_acl_is_a_permission_of_the_user(
    given: dict[str, Any], permission: dict[str, Any], secured: Secured
) -> None:
    await done(secured, Code.AUTH_DELETE_ACL)
    for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
        await done(secured, code, None, acl(given))
        none = {"topics": {}, "groups": {}, "defaults": ("DENY", "DENY")}
        assert await granted(secured) == none | permission
    shown = await found(secured, Code.AUTH_GET_ACL)
    assert await found(secured, Code.AUTH_LIST_ACL, ListAclsRequest("writer")) == [shown]
    # What is shown can be set.
    await done(secured, Code.AUTH_DELETE_ACL)
    assert await found(secured, Code.AUTH_GET_ACL) is None
    await done(secured, Code.AUTH_CREATE_ACL, None, shown)
    assert await granted(secured) == none | permission


async def test_an_acl_changes_the_named_resources_only(secured: Secured) -> None:
    await done(
        secured, Code.AUTH_CREATE_ACL, None, acl(entry("Topic:a", "Pub"), entry("Group:g", "Sub"))
    )
    await done(secured, Code.AUTH_UPDATE_ACL, None, acl(entry("Topic:a", "Sub"), kind="custom"))
    await done(secured, Code.AUTH_CREATE_ACL, None, acl(entry("Group:*", "Sub"), kind="Default"))
    assert await granted(secured) == {
        "topics": {"orders*": "PUB", "a": "SUB"},
        "groups": {"g": "SUB"},
        "defaults": ("DENY", "SUB"),
    }
    assert await found(secured, Code.AUTH_GET_ACL) == {
        "subject": "User:writer",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    entry("Topic:a", "Sub"),
                    entry("Topic:orders*", "Pub"),
                    entry("Group:g", "Sub"),
                ],
            },
            {"policyType": "Default", "entries": [entry("Group:*", "Sub")]},
        ],
    }
    for header, left in (
        (
            DeleteAclRequest("User:writer", resource="Topic:a"),
            ({"orders*": "PUB"}, {"g": "SUB"}, "SUB"),
        ),
        (
            DeleteAclRequest("User:writer", resource="Topic:none"),
            ({"orders*": "PUB"}, {"g": "SUB"}, "SUB"),
        ),
        (
            DeleteAclRequest("User:writer", "Default", "Group:*"),
            ({"orders*": "PUB"}, {"g": "SUB"}, "DENY"),
        ),
        (DeleteAclRequest("User:writer", resource=" "), ({}, {}, "DENY")),
    ):
        await done(secured, Code.AUTH_DELETE_ACL, header)
        now = await granted(secured)
        assert (now["topics"], now["groups"], now["defaults"][1]) == left


async def test_acls_are_listed_by_parts_of_subject_and_resource(secured: Secured) -> None:
    def named(listed: Any) -> dict[str, list[str]]:
        return {
            each["subject"]: [
                entry["resource"] for policy in each["policies"] for entry in policy["entries"]
            ]
            for each in listed or ()
        }

    every = {"User:reader": [f"Topic:{TOPIC}", "Group:readers"], "User:writer": ["Topic:orders*"]}
    for header, listed in (
        (ListAclsRequest(), every),
        (ListAclsRequest("User:r"), {"User:reader": every["User:reader"]}),
        (ListAclsRequest(None, "Topic:"), every | {"User:reader": [f"Topic:{TOPIC}"]}),
        (ListAclsRequest("writer", "Group:"), {}),
    ):
        assert named(await found(secured, Code.AUTH_LIST_ACL, header)) == listed


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (acl(entry("Topic:a", "Pub", decision="Deny")), "decision of resource 'Topic:a' is Deny"),
        (acl(entry("Topic:a", "Pub", decision="Ask")), "is 'Ask', accepted is Allow, Deny"),
        (acl({"resource": "Topic:a", "actions": ["Pub"]}), "decision of resource"),
        (acl(entry("Topic:a", "Pub", sourceIps=["10.0.0.0/8"])), "sourceIps of resource 'Topic:a'"),
        (acl(entry("Topic:a", "Pub", "Get")), "an action of resource 'Topic:a' is 'Get', accepted"),
        (acl(entry("Topic:a", "Any")), "an action of resource 'Topic:a' is 'Any', accepted is Pub"),
        (acl(entry("Topic:a")), "actions of resource 'Topic:a' is empty"),
        (acl(entry("Cluster:c", "Pub")), "resource is 'Cluster:c', accepted is Topic:NAME"),
        (acl(entry("*", "All")), "resource is '*'"),
        (acl({"actions": ["Pub"], "decision": "Allow"}), "resource is None"),
        (acl(entry("Topic:", "Pub")), "resource is 'Topic:'"),
        (acl(entry("Topic:a*b", "Pub")), "name 'a*b', accepted is a name"),
        (acl(entry("Topic:a", "Pub"), kind="Other"), "policyType is 'Other', accepted is Custom"),
        (acl(entry("Topic:a", "Pub"), kind="Default"), "resource of a Default policy is 'Topic:a'"),
        (acl(entry("Topic:a", "Pub"), subject="User:admin"), "subject of the body is 'User:admin'"),
        (acl(*(entry(f"Topic:t{n}", "Pub") for n in range(1_001))), "limit 1000"),
        # The first entry alone would be accepted.
        (acl(entry("Topic:a", "Pub"), entry("Topic:b", "Create")), "is 'Create'"),
        (acl(), "the ACL has no entry"),
        ({}, "the ACL has no entry"),
    ],
)
async def test_an_acl_that_permissions_cannot_express_is_refused_by_name(
    body: object, problem: str, secured: Secured, tmp_path: Path
) -> None:
    before = users_path(tmp_path).read_bytes()
    for code in (Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL):
        answer = await asked(secured, code, None, body)
        assert (answer.code, problem in (answer.remark or "")) == (NO, True), answer.remark
    assert users_path(tmp_path).read_bytes() == before


async def test_acls_of_unknown_users_and_other_subjects_are_refused(secured: Secured) -> None:
    for name, code, problem in (
        ("User:none", NO, "'none' does not exist"),
        ("Role:none", NO, "subject is 'Role:none', accepted is User:NAME"),
        (None, NO, "subject is None"),
    ):
        grant = (
            acl(entry("Topic:a", "Pub"), subject=name) if name else {"policies": GRANT["policies"]}
        )
        for request, header, body in (
            (Code.AUTH_CREATE_ACL, AclRequest(name), grant),
            (Code.AUTH_UPDATE_ACL, AclRequest(name), grant),
            (Code.AUTH_DELETE_ACL, DeleteAclRequest(name), None),
            (Code.AUTH_GET_ACL, AclRequest(name), None),
        ):
            answer = await asked(secured, request, header, body)
            assert (answer.code, problem in (answer.remark or "")) == (code, True), answer.remark
    answer = await asked(secured, Code.AUTH_DELETE_ACL, DeleteAclRequest("User:monitor"))
    assert (answer.code, answer.remark) == (NO, "user 'monitor' has no ACL")
    for header in (
        DeleteAclRequest("User:writer", None, "Any"),
        DeleteAclRequest("User:writer", "No", "Topic:a"),
    ):
        answer = await asked(secured, Code.AUTH_DELETE_ACL, header)
        assert answer.code == NO, answer.remark
    assert (await granted(secured))["topics"] == {"orders*": "PUB"}


def referring(path: object) -> dict[str, Any]:
    first = entry("Topic:a", "Pub", "Sub")
    return acl(first, {"resource": "Topic:b", "actions": {"$ref": path}, "decision": "Allow"})


async def test_references_of_fastjson_are_resolved(secured: Secured) -> None:
    """Checks them as mqadmin of 5.3 writes an ACL with several resources."""
    body = referring("$.policies[0].entries[0].actions")
    await done(secured, Code.AUTH_CREATE_ACL, None, body)
    assert (await granted(secured))["topics"] == {"orders*": "PUB", "a": "PUB|SUB", "b": "PUB|SUB"}


@pytest.mark.parametrize(
    "body",
    [
        *map(referring, ("$", "..", "$.policies", "$.policies[9]", "$.subject", "", 7, None, {})),
        referring("$.policies[0].entries[1].actions"),
        acl(entry("Topic:a", *["Pub"] * 65), referring("$.policies[0].entries[0].actions")),
        [],
        "text",
        acl(entry("Topic:a", "Pub") | {"actions": 1}),
        acl(entry("Topic:\ud800", "Pub")),
    ],
)
async def test_another_reference_or_body_is_refused(body: object, secured: Secured) -> None:
    answer = await asked(secured, Code.AUTH_CREATE_ACL, None, body)
    assert (answer.code, "AclInfo" in (answer.remark or "")) == (1, True), answer.remark
    assert (await granted(secured))["topics"] == {"orders*": "PUB"}


async def test_a_large_acl_is_refused(secured: Secured) -> None:
    answer = await asked(
        secured, Code.AUTH_CREATE_ACL, None, acl(entry("Topic:" + "x" * (1 << 19), "Pub"))
    )
    assert (answer.code, "bytes of the body" in (answer.remark or "")) == (29, True)


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
        assert line.startswith(f"user admin did {code.name} of {resource} from ipv4:127.0.0.1:")
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
