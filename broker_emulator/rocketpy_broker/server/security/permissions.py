"""Permissions of users for topics, groups and the broker.

`authorize` is the one rule of all protocols. The most exact entry counts: a name, else the longest
prefix, else the default. Retry topics and dead letters follow their group. A system topic needs an
entry with its exact name.
Source: PlainPermissionManager, Permission.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag

from rocketpy_broker.server.security.errors import NoPermissionError, UserError
from rocketpy_broker.services.topics.system import RESERVED
from rocketpy_proto.model import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RESERVED_PREFIX,
    RETRY_PREFIX,
    retry_topic,
)

PREFIX_MARK = "*"
NAME = re.compile(r"[%|a-zA-Z0-9_-]{0,255}\*?")
# Topics of pop retries have the group's name, one of these, and the topic's name.
POP_SEPARATORS = ("_", "+")


class Action(IntFlag):
    """Actions, with RocketMQ's names. A request that needs several is served with any of them."""

    DENY = 0
    PUB = 1
    SUB = 2
    ADMIN = 4
    MONITOR = 8
    ALL = PUB | SUB | ADMIN


class Role(Enum):
    """Roles of users: an admin may do all; a monitor may also see all counts."""

    USER = "user"
    MONITOR = "monitor"
    ADMIN = "admin"


class ResourceType(Enum):
    """Types of resources."""

    TOPIC = "topic"
    GROUP = "group"
    USER = "user"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic, a consumer or producer group, a user, or the broker as a whole."""

    type: ResourceType
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type.value} {self.name!r:.300}" if self.name else f"the {self.type.value}"


BROKER = Resource(ResourceType.BROKER)
_OF_ROLES = frozenset({ResourceType.BROKER, ResourceType.USER})
_GRANTED_BY_ROLE = {Role.USER: Action.DENY, Role.MONITOR: Action.MONITOR}


def topic(name: str) -> Resource:
    """Returns the resource of a topic."""
    return Resource(ResourceType.TOPIC, name)


def popped(name: str, group: str) -> Resource:
    """Returns the resource of a topic whose messages a group acknowledges.

    A topic of the group's pop retries follows the group. This holds for acknowledgements only: the
    name may also be the retry topic of a group with a longer name.
    """
    own = retry_topic(group)
    is_own = bool(group) and name.startswith(own) and name[len(own) :].startswith(POP_SEPARATORS)
    return topic(own if is_own else name)


def group(name: str) -> Resource:
    """Returns the resource of a consumer group or a producer group."""
    return Resource(ResourceType.GROUP, name)


def user(access_key: str) -> Resource:
    """Returns the resource of a user, which only an admin may see and change."""
    return Resource(ResourceType.USER, access_key)


def permission_text(actions: Action) -> str:
    """Returns RocketMQ's text of a permission, such as `PUB|SUB`."""
    if actions == Action.ALL:
        return "ALL"
    names = [each.name for each in (Action.PUB, Action.SUB, Action.ADMIN, Action.MONITOR)]
    return "|".join(name for name in names if name and Action[name] & actions) or "DENY"


def parse_permission(text: str) -> Action:
    """Returns the actions of a permission's text. Raises UserError."""
    parts = text.upper().split("|")
    if not set(parts) <= {"PUB", "SUB", "ALL", "DENY"} or ("DENY" in parts and len(parts) > 1):
        raise UserError(f"permission {text!r:.100}, accepted is PUB, SUB, PUB|SUB, ALL or DENY")
    actions = Action.DENY
    for part in parts:
        actions |= Action[part]
    return actions


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions by name or prefix, such as `orders*`, and for all other names."""

    entries: Mapping[str, Action]
    default: Action = Action.DENY
    # The lengths of the prefixes, the longest first: a look-up does not try each entry.
    _lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths = {len(each) - 1 for each in self.entries if each.endswith(PREFIX_MARK)}
        object.__setattr__(self, "_lengths", tuple(sorted(lengths, reverse=True)))

    def of(self, name: str) -> Action:
        """Returns the actions for a name: of its entry, its longest prefix, or the default."""
        exact = self.exactly(name)
        if exact is not None:
            return exact
        for length in self._lengths:
            found = self.entries.get(name[:length] + PREFIX_MARK)
            if found is not None and len(name) >= length:
                return found
        return self.default

    def somewhere(self) -> Action:
        """Returns the actions that are allowed for at least one name."""
        found = self.default
        for each in self.entries.values():
            found |= each
        return found

    def exactly(self, name: str) -> Action | None:
        """Returns the actions of the entry with this name; None without one."""
        return None if name.endswith(PREFIX_MARK) else self.entries.get(name)


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as the permissions see it."""

    access_key: str
    role: Role
    topics: Permissions
    groups: Permissions

    def granted(self, resource: Resource) -> Action:
        """Returns the actions that the user may do with a resource."""
        if self.role is Role.ADMIN:
            return Action.ALL | Action.MONITOR
        if resource.type in _OF_ROLES:
            return _GRANTED_BY_ROLE[self.role]
        name = resource.name
        if resource.type is ResourceType.GROUP:
            return self.groups.of(name)
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
            if name.startswith(prefix):
                granted = self.groups.of(name.removeprefix(prefix))
                # A consumer sends messages back to its group's topics.
                return granted | Action.PUB if Action.SUB & granted else granted & ~Action.PUB
        if is_system(name):
            return self.topics.exactly(name) or Action.DENY
        return self.topics.of(name)

    def granted_somewhere(self, kind: ResourceType) -> Action:
        """Returns the actions that the user may do with at least one topic, or group."""
        if self.role is Role.ADMIN:
            return Action.ALL
        return (self.groups if kind is ResourceType.GROUP else self.topics).somewhere()


def is_system(name: str) -> bool:
    """True if the topic is the broker's own, which may have messages of other topics."""
    return (
        name in RESERVED or name.lower().startswith(RESERVED_PREFIX) or name.endswith(REPLY_SUFFIX)
    )


def authorize(principal: Principal, action: Action, resource: Resource) -> None:
    """Raises NoPermissionError unless the user may do one of the actions with the resource."""
    if not principal.granted(resource) & action:
        raise NoPermissionError(principal.access_key, _needed(action, resource), str(resource))


def _needed(action: Action, resource: Resource) -> str:
    """Returns the permission or the role that allows an action, as `rocketpy user` takes it."""
    by_entry = action & Action.ALL
    if resource.type in _OF_ROLES or not by_entry:
        return f"role {(Role.MONITOR if Action.MONITOR & action else Role.ADMIN).value}"
    return f"permission {permission_text(Action.ALL if by_entry == Action.ADMIN else by_entry)}"
