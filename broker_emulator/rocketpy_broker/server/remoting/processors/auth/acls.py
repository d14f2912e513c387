"""ACLs of RocketMQ 5 as permissions of a user, and back.

    Custom policy, Topic:NAME, Topic:PREFIX*, Topic:*     an entry of the user's permissions
    Default policy, Topic:*                               the permission of all other topics
    Allow with Pub, Sub, both, or All                     PUB, SUB, PUB|SUB, ALL
    Deny with All                                         DENY

The same holds for Group. An ACL with anything else is refused as a whole.
Source: AclConverter, AuthorizationMetadataManagerImpl, AuthMigrator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rocketpy_broker.server.security.errors import UserError
from rocketpy_broker.server.security.permissions import (
    PREFIX_MARK,
    Action,
    Principal,
    permission_text,
)
from rocketpy_proto.remoting.bodies.auth import AclInfo, Policy, PolicyEntry
from rocketpy_proto.rocketpy.v1 import admin_pb2

USER, TOPIC, GROUP = "User", "Topic", "Group"
CUSTOM, DEFAULT = "Custom", "Default"
ALL, ALLOW, DENY = "All", "Allow", "Deny"
_ACTIONS = {"Pub": Action.PUB, "Sub": Action.SUB, ALL: Action.ALL}

V = TypeVar("V")


def chosen(what: str, text: str, values: Mapping[str, V]) -> V:
    """Returns the value of a name in any case. Raises UserError."""
    for name, value in values.items():
        if name.lower() == text.lower():
            return value
    raise UserError(f"{what} is {text!r:.100}, accepted is {', '.join(values)}")


def access_key_of(subject: str | None) -> str:
    """Returns the user of a subject, such as `User:NAME`. Raises UserError."""
    kind, _, access_key = (subject or "").partition(":")
    if kind.lower() != USER.lower():
        raise UserError(f"subject is {subject!r:.100}, accepted is {USER}:NAME")
    return access_key


def acl_of(principal: Principal, part: str = "") -> AclInfo:
    """Returns the permissions of a user for resources with this part in their names.

    The ACL has no policies if there is no such permission.
    """
    tables = ((TOPIC, principal.topics), (GROUP, principal.groups))
    custom = [
        _entry(kind, name, table.entries[name])
        for kind, table in tables
        for name in sorted(table.entries)
    ]
    default = [_entry(kind, PREFIX_MARK, table.default) for kind, table in tables if table.default]
    policies = []
    for kind, entries in ((CUSTOM, custom), (DEFAULT, default)):
        found = tuple(each for each in entries if part in (each.resource or ""))
        if found:
            policies.append(Policy(kind, found))
    return AclInfo(f"{USER}:{principal.access_key}", tuple(policies))


def _entry(kind: str, name: str, actions: Action) -> PolicyEntry:
    resource = f"{kind}:{name}"
    if actions == Action.DENY:
        return PolicyEntry(resource, (ALL,), decision=DENY)
    if actions == Action.ALL:
        return PolicyEntry(resource, (ALL,), decision=ALLOW)
    names = tuple(name for name in ("Pub", "Sub") if _ACTIONS[name] & actions)
    return PolicyEntry(resource, names, decision=ALLOW)


def grant_of(subject: str | None, acl: AclInfo) -> admin_pb2.User:
    """Returns the change of a user's permissions that an ACL describes. Raises UserError."""
    if acl.subject is not None and acl.subject != subject:
        raise UserError(
            f"subject of the body is {acl.subject!r:.100}, accepted is {subject!r:.100}"
        )
    change = admin_pb2.User(access_key=access_key_of(subject))
    entries = [(policy.policy_type, entry) for policy in acl.policies for entry in policy.entries]
    if not entries:
        raise UserError("the ACL has no entry; name a resource and its actions")
    for policy_type, entry in entries:
        _set(change, policy_type, entry.resource, permission_text(_actions(entry)))
    return change


def removal_of(
    principal: Principal, policy_type: str | None, resource: str | None
) -> admin_pb2.User:
    """Returns the change that removes one permission, or all. Raises UserError."""
    change = admin_pb2.User(access_key=principal.access_key)
    if resource and not resource.isspace():
        _set(change, policy_type, resource, "")
        return change
    for policy in acl_of(principal).policies:
        for entry in policy.entries:
            _set(change, policy.policy_type, entry.resource, "")
    return change


def _set(
    change: admin_pb2.User, policy_type: str | None, resource: str | None, permission: str
) -> None:
    """Enters a permission into the change; an empty one is a removal. Raises UserError."""
    kind, _, name = (resource or "").partition(":")
    is_default = chosen("policyType", policy_type or CUSTOM, {CUSTOM: False, DEFAULT: True})
    if kind.lower() not in {TOPIC.lower(), GROUP.lower()} or not name:
        raise UserError(
            f"resource is {resource!r:.300}, accepted is Topic:NAME, Topic:PREFIX*, Topic:*, "
            "Group:NAME, Group:PREFIX* or Group:*; roles permit the rest"
        )
    if is_default and name != PREFIX_MARK:
        raise UserError(
            f"resource of a Default policy is {resource!r:.300}, accepted is Topic:* or Group:*"
        )
    is_topic = kind.lower() == TOPIC.lower()
    if not is_default:
        entries = change.topic_permissions if is_topic else change.group_permissions
        entries[name] = permission
    elif is_topic:
        change.default_topic_permission = permission or Action.DENY.name
    else:
        change.default_group_permission = permission or Action.DENY.name


def _actions(entry: PolicyEntry) -> Action:
    """Returns the actions that an entry permits. Raises UserError."""
    shown = f"of resource {entry.resource!r:.300}"
    if entry.source_ips:
        raise UserError(
            f"sourceIps {shown} is {entry.source_ips!r:.200}, accepted is none: permissions hold "
            "for all addresses"
        )
    actions = Action.DENY
    for name in entry.actions:
        actions |= chosen(f"an action {shown}", name, _ACTIONS)
    if not actions:
        raise UserError(f"actions {shown} is empty, accepted is Pub, Sub, both, or All")
    decisions = {ALLOW: actions, DENY: Action.DENY}
    permitted = chosen(f"decision {shown}", entry.decision or "", decisions)
    if permitted == Action.DENY and actions != Action.ALL:
        raise UserError(f"decision {shown} is Deny, which only the action All may have")
    return permitted
