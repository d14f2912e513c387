"""ACLs by RocketMQ's requests, as permissions of users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting.headers.auth import (
    AclRequest,
    DeleteAclRequest,
    ListAclsRequest,
)
from tests.broker.remoting.users.auth_requests import (
    GRANT,
    NO,
    acl,
    asked,
    done,
    entry,
    found,
    granted,
)
from tests.support.broker.clients.users import TOPIC, Secured, users_path


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
