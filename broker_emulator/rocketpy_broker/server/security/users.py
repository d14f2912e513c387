"""Users of a broker: `config/users.json`.

The file is replaced as a whole, without a backup: a backup would bring back users that were
removed. A change is on disk before it takes effect and is answered. Programs that change the file
lock `users.lock`: one at a time reads the file, and replaces it. A broken file stops a start. If it
becomes broken while the broker runs, that is logged and ignored. Once there were users, the broker
requires signatures until it stops, even if the file is emptied.
State: the users, in memory with their secret keys.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rocketpy_broker.errors import BrokerError, ConfigFileError
from rocketpy_broker.runtime.clock import Clock, sleep
from rocketpy_broker.server.security.errors import UserError, UserNotExistError
from rocketpy_broker.server.security.permissions import (
    NAME,
    Action,
    Permissions,
    Principal,
    Role,
    parse_permission,
    permission_text,
)
from rocketpy_broker.server.security.secret_box import SecretBox
from rocketpy_broker.store.files import durable
from rocketpy_proto.counts import counted
from rocketpy_proto.rocketpy.v1 import admin_pb2

logger = logging.getLogger(__name__)
ACCESS_KEY = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
SECRET_KEY = re.compile(r"[!-~]{8,256}")
USERS_MAX, PERMISSIONS_MAX = 10_000, 1_000


@dataclass(frozen=True, slots=True)
class User:
    """A user with its secret key, which no response and no log line shows."""

    principal: Principal
    secret_key: str = field(repr=False)
    is_enabled: bool = True

    @property
    def is_admin(self) -> bool:
        """True for an admin that may sign in."""
        return self.is_enabled and self.principal.role is Role.ADMIN


Users = Mapping[str, User]


class UserTable:
    """The users by access key."""

    def __init__(self, path: Path) -> None:
        """Takes the file; the key file is beside it, with the suffix `.key`."""
        self.path = path
        self._box = SecretBox(path.with_suffix(".key"))
        self._users: Users = {}
        self._stamp: tuple[int, ...] = ()
        self._lock = asyncio.Lock()
        self.is_on = False

    def get(self, access_key: str) -> User | None:
        """Returns an enabled user, or None."""
        user = self._users.get(access_key)
        return user if user is not None and user.is_enabled else None

    def known(self) -> Users:
        """Returns all users by access key, also disabled ones, as they are now."""
        return self._users

    def messages(self) -> list[admin_pb2.User]:
        """Returns all users, without their secret keys, sorted by access key."""
        return [_message(self._users[key]) for key in sorted(self._users)]

    # --- The file ---

    def load(self) -> None:
        """Reads the file. Blocks. Raises ConfigFileError."""
        try:
            self._take(*self._read())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise ConfigFileError(self.path, str(error), "repair the file") from error

    async def follow(self, clock: Clock, interval_ms: int) -> None:
        """Reads the file again, at each check that finds it changed, until cancelled."""
        while True:
            await sleep(clock, interval_ms)
            await self.reload()

    async def reload(self) -> None:
        """Reads the file again if it has changed; keeps the users if it cannot be read."""
        async with self._lock:
            await self._reload()

    async def _reload(self) -> None:
        stamp: tuple[int, ...] = ()
        try:
            stamp = await asyncio.to_thread(self._stamp_of_file)
            if stamp == self._stamp:
                return
            users, read_stamp = await asyncio.to_thread(self._read)
        except FileNotFoundError:
            users, read_stamp = {}, ()
        except (OSError, ValueError, BrokerError) as error:
            logger.warning("%s: %s; the users stay as they were; repair the file", self.path, error)
            # The stamp from before the read: a change since then is read at the next look.
            self._stamp = stamp
            return
        self._take(users, read_stamp)
        logger.warning("%s has changed: %s", self.path, counted(len(users), "user"))

    def _take(self, users: Users, stamp: tuple[int, ...]) -> None:
        self._users, self._stamp = users, stamp
        self.is_on = self.is_on or bool(users)

    def _stamp_of_file(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        return (found.st_ino, found.st_mtime_ns, found.st_size)

    def _read(self) -> tuple[Users, tuple[int, ...]]:
        """Returns the users in the file, and its stamp. Raises OSError, ValueError."""
        stamp = self._stamp_of_file()
        content = msgspec.json.decode(self.path.read_bytes())
        try:
            entries = content["users"].items()
            users = {key: self._decoded(key, entry) for key, entry in entries}
        except (AttributeError, KeyError, TypeError, UserError) as error:
            raise ValueError(f"it is no table of users: {error}") from error
        return users, stamp

    def _decoded(self, access_key: str, entry: Mapping[str, Any]) -> User:
        change = admin_pb2.User(
            access_key=access_key,
            secret_key=self._box.decrypt(entry["secretKey"]),
            role=entry["role"],
            enabled=entry["enabled"],
            topic_permissions=entry["topicPerms"],
            group_permissions=entry["groupPerms"],
            default_topic_permission=entry["defaultTopicPerm"],
            default_group_permission=entry["defaultGroupPerm"],
        )
        return _changed(None, change)

    def _write(self, users: Users) -> tuple[int, ...]:
        """Replaces the file; returns its stamp. Raises OSError, ConfigFileError."""
        entries = {key: self._encoded(users[key]) for key in sorted(users)}
        text = msgspec.json.format(msgspec.json.encode({"users": entries}), indent=2)
        durable.replace_bytes(self.path, text + b"\n")
        return self._stamp_of_file()

    def _encoded(self, user: User) -> Mapping[str, object]:
        message = _message(user)
        return {
            "secretKey": self._box.encrypt(user.secret_key),
            "role": message.role,
            "enabled": message.enabled,
            "topicPerms": dict(message.topic_permissions),
            "groupPerms": dict(message.group_permissions),
            "defaultTopicPerm": message.default_topic_permission,
            "defaultGroupPerm": message.default_group_permission,
        }

    # --- Changes ---

    async def update(self, change: admin_pb2.User, *, create: bool) -> admin_pb2.User:
        """Creates or changes a user; returns it without its secret key.

        Raises UserError, ConfigFileError, OSError; then nothing was changed.
        """
        await self._replace(lambda users: _with(users, change, create=create))
        return _message(self._users[change.access_key])

    async def remove(self, access_key: str) -> None:
        """Removes a user. Raises as `update`."""
        await self._replace(lambda users: _without(users, access_key))

    def update_now(self, change: admin_pb2.User, *, create: bool) -> None:
        """Creates or changes a user, as `update` does, without an event loop. Blocks."""
        self._take(*self._replaced(lambda users: _with(users, change, create=create)))

    def remove_now(self, access_key: str) -> None:
        """Removes a user, as `remove` does, without an event loop. Blocks."""
        self._take(*self._replaced(lambda users: _without(users, access_key)))

    async def _replace(self, change: Callable[[Users], Users]) -> None:
        async with self._lock:
            self._take(*await asyncio.to_thread(self._replaced, change))

    def _replaced(self, change: Callable[[Users], Users]) -> tuple[Users, tuple[int, ...]]:
        """Changes the users that the file has now; one program at a time. Blocks."""
        with self._locked():
            try:
                known = self._read()[0]
            except FileNotFoundError:
                known = {}
            except (OSError, ValueError, BrokerError) as error:
                logger.warning(
                    "%s cannot be read (%s); it is replaced by the users in memory",
                    *(self.path, error),
                )
                known = self._users
            users = change(known)
            return users, self._write(users)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits for other programs that change the file. Raises OSError, ConfigFileError."""
        path = self.path.with_suffix(".lock")
        path.parent.mkdir(durable.FOLDER_MODE, parents=True, exist_ok=True)
        with open(path, "ab", opener=durable.open_private) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError as error:
                way_out = "keep it on a file system with locks"
                raise ConfigFileError(path, f"it cannot be locked: {error}", way_out) from error
            yield


def _with(users: Users, change: admin_pb2.User, *, create: bool) -> Users:
    """Returns the users after a change. Raises UserError."""
    known = users.get(change.access_key)
    if create and known is not None:
        raise UserError(f"user {change.access_key!r} exists; `rocketpy user update` changes it")
    if not create and known is None:
        raise UserNotExistError(change.access_key)
    changed = {**users, change.access_key: _changed(known, change)}
    if len(changed) > USERS_MAX:
        raise UserError(f"too many users, limit {USERS_MAX}. Remove some")
    return _with_admin(changed)


def _without(users: Users, access_key: str) -> Users:
    """Returns the other users. Raises UserError."""
    if access_key not in users:
        raise UserNotExistError(access_key)
    return _with_admin({key: users[key] for key in users if key != access_key})


def _with_admin(users: Users) -> Users:
    """Returns the users. Raises UserError if none could manage them."""
    if not any(user.is_admin for user in users.values()):
        raise UserError("the broker needs an enabled user with the role admin; create one first")
    return users


def _changed(known: User | None, change: admin_pb2.User) -> User:
    """Returns a new or changed user. Raises UserError."""
    old = None if known is None else known.principal
    key = change.access_key
    if not ACCESS_KEY.fullmatch(key):
        raise UserError(f"access key {key!r:.100}, accepted is 1 to 64 of a-z A-Z 0-9 _ . @ -")
    if change.HasField("secret_key"):
        secret_key = change.secret_key
    elif known is not None:
        secret_key = known.secret_key
    else:
        raise UserError("a new user needs a secret key")
    if not SECRET_KEY.fullmatch(secret_key):
        raise UserError("the secret key is not accepted; use 8 to 256 ASCII characters, no blanks")
    is_enabled = known is None or known.is_enabled
    return User(
        Principal(
            key,
            _role(change) or (Role.USER if old is None else old.role),
            _permissions(
                None if old is None else old.topics,
                change.topic_permissions,
                _default(change, "default_topic_permission"),
            ),
            _permissions(
                None if old is None else old.groups,
                change.group_permissions,
                _default(change, "default_group_permission"),
            ),
        ),
        secret_key,
        change.enabled if change.HasField("enabled") else is_enabled,
    )


def _role(change: admin_pb2.User) -> Role | None:
    if not change.HasField("role"):
        return None
    try:
        return Role(change.role)
    except ValueError as error:
        accepted = ", ".join(role.value for role in Role)
        raise UserError(f"role {change.role!r:.100}, accepted is {accepted}") from error


def _default(change: admin_pb2.User, name: str) -> str | None:
    return getattr(change, name) if change.HasField(name) else None


def _permissions(
    old: Permissions | None, changes: Mapping[str, str], default: str | None
) -> Permissions:
    """Returns the permissions with the changes; an empty text removes an entry."""
    entries = {} if old is None else dict(old.entries)
    for name, text in changes.items():
        if not NAME.fullmatch(name) or not name:
            raise UserError(f"name {name!r:.300}, accepted is a name, or a prefix and *")
        if text:
            entries[name] = parse_permission(text)
        else:
            entries.pop(name, None)
    if len(entries) > PERMISSIONS_MAX:
        raise UserError(f"too many permissions of one user, limit {PERMISSIONS_MAX}. Use prefixes")
    if default is not None:
        return Permissions(entries, parse_permission(default))
    return Permissions(entries, Action.DENY if old is None else old.default)


def _message(user: User) -> admin_pb2.User:
    principal = user.principal
    return admin_pb2.User(
        access_key=principal.access_key,
        role=principal.role.value,
        enabled=user.is_enabled,
        topic_permissions=_texts(principal.topics.entries.items()),
        group_permissions=_texts(principal.groups.entries.items()),
        default_topic_permission=permission_text(principal.topics.default),
        default_group_permission=permission_text(principal.groups.default),
    )


def _texts(entries: Iterable[tuple[str, Action]]) -> dict[str, str]:
    return {name: permission_text(actions) for name, actions in entries}
