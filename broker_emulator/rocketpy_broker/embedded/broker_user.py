"""Users of a LocalBroker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocketpy_broker.server.security.users import FILE_NAME, UserTable
from rocketpy_proto.rocketpy.v1 import admin_pb2

ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class BrokerUser:
    """A user: role `user`, `monitor` or `admin`, and permissions by topic and group.

    Permissions are RocketMQ's: `PUB`, `SUB`, `PUB|SUB`, `ALL` or `DENY`. A name may be a prefix and
    `*`.
    """

    access_key: str
    secret_key: str = field(repr=False)
    role: str = "user"
    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)


def write_users(data: Path, users: Sequence[BrokerUser]) -> None:
    """Creates or changes users in a data directory. Raises UserError, ConfigFileError, OSError."""
    table = UserTable(data / "config" / FILE_NAME)
    table.load()
    known = {each.access_key for each in table.messages()}
    # The first user must be an admin.
    for user in sorted(users, key=lambda each: each.role != ADMIN):
        change = admin_pb2.User(
            access_key=user.access_key,
            secret_key=user.secret_key,
            role=user.role,
            topic_permissions=user.topics,
            group_permissions=user.groups,
        )
        table.update_now(change, create=user.access_key not in known)
