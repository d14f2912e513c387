"""`rocketpy user …`: users of a running broker, or of a data directory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rocketpy_broker.cli import output
from rocketpy_broker.cli.broker_client import DEFAULT_ENDPOINT, Endpoint, asking, refuse
from rocketpy_broker.cli.confirm import Yes, confirm
from rocketpy_broker.cli.key_value_options import key_value_options
from rocketpy_broker.cli.output import Column
from rocketpy_broker.client.brokers import delete_user, list_users, update_user
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.server.security.permissions import Role as UserRole
from rocketpy_broker.server.security.users import UserTable
from rocketpy_proto.rocketpy.v1 import admin_pb2

User = admin_pb2.User
SECRET_BYTES = 32


AccessKey = Annotated[str, typer.Argument(help="The user's access key.", metavar="ACCESS_KEY")]
Role = Annotated[
    UserRole | None,
    typer.Option(help="user (default), monitor (sees counts, no message) or admin (may do all)."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="NAME=PERM",
        help="Permission for a topic, or for a prefix and *: PUB, SUB, PUB|SUB, ALL or DENY. "
        "Repeatable. An empty PERM removes the entry.",
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="NAME=PERM", help="Permission for a group, as --topic. Repeatable."
    ),
]
DefaultTopic = Annotated[
    str | None, typer.Option(metavar="PERM", help="Permission for all other topics; DENY at first.")
]
DefaultGroup = Annotated[
    str | None, typer.Option(metavar="PERM", help="Permission for all other groups; DENY at first.")
]
Enabled = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Whether the user may sign in.")
]
UserSecretKey = Annotated[
    str | None,
    typer.Option(
        envvar="ROCKETPY_USER_SECRET_KEY",
        help="The user's secret key, 8 to 256 characters. A command line is visible to other users "
        "of this machine.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Directory of a store: its users file, in place of a running broker."),
]
UsersFile = Annotated[
    Path | None, typer.Option("--users", help="A users file, in place of a running broker.")
]


def _cell(permissions: dict[str, str]) -> str:
    return " ".join(f"{name}={permissions[name]}" for name in sorted(permissions)) or output.ABSENT


COLUMNS = (
    Column("accessKey", "access key", "access_key"),
    Column("role", "role", "role"),
    Column("enabled", "enabled", "enabled", lambda value: "yes" if value else "no"),
    Column("topicPerms", "topics", lambda each: dict(each.topic_permissions), _cell),
    Column("groupPerms", "groups", lambda each: dict(each.group_permissions), _cell),
    Column("defaultTopicPerm", "other topics", "default_topic_permission"),
    Column("defaultGroupPerm", "other groups", "default_group_permission"),
)
user_app = typer.Typer(
    help="Create, change, list and remove users.", no_args_is_help=True, rich_markup_mode=None
)


@user_app.command("add")
def add(
    access_key: AccessKey,
    role: Role = None,
    topic: Topics = None,
    group: Groups = None,
    default_topic: DefaultTopic = None,
    default_group: DefaultGroup = None,
    enabled: Enabled = None,
    user_secret_key: UserSecretKey = None,
    data: Data = None,
    users: UsersFile = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Create a user. Without --user-secret-key, draw a secret key and print it once."""
    change = _change(access_key, role, topic, group, default_topic, default_group, enabled)
    drawn = None if user_secret_key else secrets.token_urlsafe(SECRET_BYTES)
    change.secret_key = user_secret_key or drawn or ""
    _update(change, data, users, endpoint, create=True)
    _print_changed("added", access_key, drawn, as_json=as_json)


@user_app.command("update")
def update(
    access_key: AccessKey,
    role: Role = None,
    topic: Topics = None,
    group: Groups = None,
    default_topic: DefaultTopic = None,
    default_group: DefaultGroup = None,
    enabled: Enabled = None,
    user_secret_key: UserSecretKey = None,
    draw_secret_key: Annotated[
        bool, typer.Option("--draw-secret-key", help="Draw a new secret key and print it once.")
    ] = False,
    data: Data = None,
    users: UsersFile = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Change a user; options that are left out change nothing."""
    change = _change(access_key, role, topic, group, default_topic, default_group, enabled)
    drawn = secrets.token_urlsafe(SECRET_BYTES) if draw_secret_key else None
    if user_secret_key or drawn:
        change.secret_key = user_secret_key or drawn or ""
    _update(change, data, users, endpoint, create=False)
    _print_changed("updated", access_key, drawn, as_json=as_json)


@user_app.command("remove")
def remove(
    access_key: AccessKey,
    yes: Yes = False,
    data: Data = None,
    users: UsersFile = None,
    as_json: output.AsJson = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """Remove a user; its next request is refused."""
    confirm(f"Remove user {access_key!r}?", yes=yes)
    path = _path(data, users)
    if path is None:
        with asking(endpoint) as connection:
            delete_user(connection, access_key)
    else:
        with _table(path) as table:
            table.remove_now(access_key)
    _print_changed("removed", access_key, None, as_json=as_json)


@user_app.command("list")
def list_of_users(
    data: Data = None,
    users: UsersFile = None,
    as_json: output.AsJsonLines = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
) -> None:
    """List all users with their permissions, without their secret keys."""
    path = _path(data, users)
    if path is None:
        with asking(endpoint) as connection:
            output.print_entries(COLUMNS, list_users(connection), as_json=as_json)
    else:
        with _table(path) as table:
            output.print_entries(COLUMNS, table.messages(), as_json=as_json)


def _change(
    access_key: str,
    role: UserRole | None,
    topics: list[str] | None,
    groups: list[str] | None,
    default_topic: str | None,
    default_group: str | None,
    enabled: bool | None,
) -> User:
    change = User(
        access_key=access_key,
        role=None if role is None else role.value,
        topic_permissions=key_value_options(topics, "--topic"),
        group_permissions=key_value_options(groups, "--group"),
        default_topic_permission=default_topic,
        default_group_permission=default_group,
    )
    if enabled is not None:
        change.enabled = enabled
    return change


def _update(
    change: User, data: Path | None, users: Path | None, endpoint: str, *, create: bool
) -> None:
    path = _path(data, users)
    if path is None:
        with asking(endpoint) as connection:
            update_user(connection, change, create=create)
    else:
        with _table(path) as table:
            table.update_now(change, create=create)


def _path(data: Path | None, users: Path | None) -> Path | None:
    """Returns the users file that the options name; None for a running broker."""
    if data is not None and users is not None:
        raise typer.BadParameter("give --data or --users, not both", param_hint="--users")
    return users if data is None else BrokerConfig(data).users_file


@contextmanager
def _table(path: Path) -> Iterator[UserTable]:
    """Yields the users of a file; ends the command with the remark of an error."""
    try:
        table = UserTable(path)
        table.load()
        yield table
    except BrokerError as error:
        refuse(error.remark)


def _print_changed(done: str, access_key: str, drawn: str | None, *, as_json: bool) -> None:
    if as_json:
        secret = {} if drawn is None else {"secretKey": drawn}
        output.print_json({"accessKey": access_key, **secret})
        return
    typer.echo(f"{done} user {access_key}")
    if drawn is not None:
        typer.echo(f"secret key, which is not shown again: {drawn}")
