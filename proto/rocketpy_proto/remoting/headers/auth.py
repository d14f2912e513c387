"""Headers about users and ACLs. Source: docs/design/remoting.md section 2.8."""

from __future__ import annotations

from rocketpy_proto.remoting.fields import Header


class UserRequest(Header, frozen=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER and AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequest(Header, frozen=True):
    """AUTH_LIST_USER: a part of the names; without it all users are meant."""

    filter: str | None = None


class AclRequest(Header, frozen=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL and AUTH_GET_ACL; a subject is `User:NAME`."""

    subject: str | None = None


class DeleteAclRequest(Header, frozen=True):
    """AUTH_DELETE_ACL: one resource of a policy, or the whole ACL."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequest(Header, frozen=True):
    """AUTH_LIST_ACL: a part of the subjects, and one of the resources."""

    subject_filter: str | None = None
    resource_filter: str | None = None
