"""Bodies about users and ACLs.

A list of users or ACLs is a JSON array. fastjson 1, which 5.3 has, writes a list that entries share
once, and then references to it: `{"$ref":"$.policies[0].entries[0].actions"}`. Source:
docs/design/remoting.md sections 2.8 and 5.3.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from rocketpy_proto.remoting.errors import RemotingFormatError
from rocketpy_proto.remoting.fields import decode_body
from rocketpy_proto.remoting.json_text import format_error, parse_json
from rocketpy_proto.struct_types import Body

# A list that references name has actions or addresses; a longer one is refused.
SHARED_TEXTS_MAX = 64
_REFERENCE_KEYS = {"$ref"}
_PATH_STEP = re.compile(r"\.(\w+)|\[([0-9]{1,9})\]")


class UserInfo(Body, frozen=True):
    """A user. RocketMQ's types are Super and Normal, its statuses enable and disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntry(Body, frozen=True):
    """Actions with a resource, such as `Topic:orders*`, that a policy allows or denies."""

    resource: str | None = None
    actions: tuple[str, ...] = ()
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None


class Policy(Body, frozen=True):
    """Entries of one type: Custom, or Default for resources without a custom entry."""

    policy_type: str | None = None
    entries: tuple[PolicyEntry, ...] = ()


class AclInfo(Body, frozen=True):
    """The policies of a subject, which is `User:NAME`."""

    subject: str | None = None
    policies: tuple[Policy, ...] = ()


def decode_acl(data: bytes) -> AclInfo:
    """Returns an ACL, with its references resolved. Raises RemotingFormatError."""
    value = parse_json(data, AclInfo.__name__)
    try:
        text = msgspec.json.encode(_resolved(value, value))
    except UnicodeEncodeError as error:
        raise format_error(AclInfo.__name__, error) from error
    return decode_body(AclInfo, text)


def _resolved(value: Any, root: Any) -> Any:
    """Returns the value with the lists of texts that its references name."""
    if isinstance(value, list):
        return [_resolved(each, root) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _REFERENCE_KEYS:
        return _target(root, value["$ref"])
    return {name: _resolved(each, root) for name, each in value.items()}


def _target(root: Any, path: Any) -> list[str]:
    """Returns the list of texts at a path such as `$.policies[0].entries[0].actions`."""
    found = root
    try:
        for name, index in _PATH_STEP.findall(path):
            found = found[name] if name else found[int(index)]
    except (KeyError, IndexError, TypeError):
        found = None
    is_short = isinstance(found, list) and len(found) <= SHARED_TEXTS_MAX
    if not is_short or not all(isinstance(each, str) for each in found):
        reason = f"a reference to no list of up to {SHARED_TEXTS_MAX} texts: {path!r:.100}"
        raise RemotingFormatError(AclInfo.__name__, reason)
    return list(found)
