"""Requests of the admin about users and ACLs, and their answers."""

from __future__ import annotations

import json
from typing import Any

from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import Header, RemotingCommand
from rocketpy_proto.remoting.headers.auth import (
    AclRequest,
    DeleteAclRequest,
    ListAclsRequest,
    ListUsersRequest,
    UserRequest,
)
from rocketpy_proto.rocketpy.v1 import admin_pb2
from tests.support.broker.clients.users import Secured

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


def entry(resource: str, *actions: str, decision: str = "Allow", **more: Any) -> dict[str, Any]:
    """Returns an entry of a policy; `more` has its other fields."""
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


def acl(*entries: object, subject: str = "User:writer", kind: str | None = None) -> dict[str, Any]:
    """Returns an ACL with one policy, of the type `kind` if one is given."""
    policy: dict[str, Any] = {"entries": list(entries)}
    if kind is not None:
        policy["policyType"] = kind
    return {"subject": subject, "policies": [policy]}


GRANT = acl(entry("Topic:granted", "Pub"))
BODIES: dict[Code, object] = {
    Code.AUTH_CREATE_USER: {"username": "new", "password": SECRET},
    Code.AUTH_UPDATE_USER: {"userStatus": "disable"},
    Code.AUTH_CREATE_ACL: GRANT,
    Code.AUTH_UPDATE_ACL: GRANT,
}


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
