"""Users and ACLs for RocketMQ's tools, in the broker's users file.

A change that RocketMQ's managers or the table of users refuse is answered with NO_PERMISSION. As
RocketMQ does, users are returned with their secret keys, so that copyUser can copy them. Only an
admin may make these requests.
Source: AdminBrokerProcessor, UserConverter, AuthenticationMetadataManagerImpl, docs/security.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.processors.auth.acls import (
    access_key_of,
    acl_of,
    chosen,
    grant_of,
    removal_of,
)
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.tables import AnswerSize
from rocketpy_broker.server.security.errors import NoUsersError, UserError, UserNotExistError
from rocketpy_broker.server.security.permissions import Role
from rocketpy_broker.server.security.users import User, UserTable
from rocketpy_broker.services.admin.topic_admin_service import ENTRIES_A_SLOT
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.remoting import RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies.auth import AclInfo, UserInfo, decode_acl
from rocketpy_proto.rocketpy.v1 import admin_pb2
from rocketpy_proto.struct_types import Body

# More than an ACL with PERMISSIONS_MAX topics and groups.
BODY_BYTES_MAX = 512 << 10
# RocketMQ has no monitors; its tools show and pass on each type.
ROLES = {"Super": Role.ADMIN, "Normal": Role.USER, "Monitor": Role.MONITOR}
STATUSES = {"enable": True, "disable": False}
_TYPES = {role: name for name, role in ROLES.items()}
_STATUS_NAMES = {is_enabled: name for name, is_enabled in STATUSES.items()}


class AuthProcessor:
    """The processor of users and ACLs."""

    def __init__(self, users: UserTable) -> None:
        self._users = users

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.AUTH_CREATE_USER: self._served(self._create_user),
            Code.AUTH_UPDATE_USER: self._served(self._update_user),
            Code.AUTH_DELETE_USER: self._served(self._delete_user),
            Code.AUTH_GET_USER: self._served(self._get_user),
            Code.AUTH_LIST_USER: self._served(self._list_users),
            Code.AUTH_CREATE_ACL: self._served(self._update_acl),
            Code.AUTH_UPDATE_ACL: self._served(self._update_acl),
            Code.AUTH_DELETE_ACL: self._served(self._delete_acl),
            Code.AUTH_GET_ACL: self._served(self._get_acl),
            Code.AUTH_LIST_ACL: self._served(self._list_acls),
        }

    def _served(self, call: Callable[[Request], Awaitable[bytes]]) -> Processor:
        """Returns the processor of a call that returns the answer's body."""

        def served(request: Request) -> Coroutine[Any, Any, RemotingCommand]:
            # Before any wait: a request to a broker without users was not signed, and the first
            # user may come meanwhile.
            if not self._users.is_on:
                raise NoUsersError
            return self._answer(call, request)

        return served

    async def _answer(
        self, call: Callable[[Request], Awaitable[bytes]], request: Request
    ) -> RemotingCommand:
        """Reads the users file again if it has changed; returns the answer of a call."""
        await self._users.reload()
        try:
            return request.answer(body=await call(request))
        except UserError as error:
            return request.answer(code=ResponseCode.NO_PERMISSION, remark=error.remark)

    # --- Users ---

    async def _create_user(self, request: Request) -> bytes:
        await self._users.update(await _user_of(request), create=True)
        return b""

    async def _update_user(self, request: Request) -> bytes:
        await self._users.update(await _user_of(request), create=False)
        return b""

    async def _delete_user(self, request: Request) -> bytes:
        """Deletes a user with its permissions; a missing one counts as deleted."""
        with contextlib.suppress(UserNotExistError):
            await self._users.remove(_username(request))
        return b""

    async def _get_user(self, request: Request) -> bytes:
        user = self._users.known().get(_username(request))
        return b"" if user is None else encode_body(_info(user))

    async def _list_users(self, request: Request) -> bytes:
        part = request.header.filter or ""

        def info(user: User) -> UserInfo | None:
            return _info(user) if part in user.principal.access_key else None

        return await self._list(info)

    # --- ACLs ---

    async def _update_acl(self, request: Request) -> bytes:
        """Sets the permissions of the resources in the ACL; other resources keep theirs."""
        data = bytes(request.bounded_bytes(BODY_BYTES_MAX))
        acl = await asyncio.to_thread(decode_acl, data)
        await self._users.update(grant_of(request.header.subject, acl), create=False)
        return b""

    async def _delete_acl(self, request: Request) -> bytes:
        header = request.header
        principal = self._user(header.subject).principal
        if not acl_of(principal).policies:
            raise UserError(f"user {principal.access_key!r} has no ACL")
        change = removal_of(principal, header.policy_type, header.resource)
        await self._users.update(change, create=False)
        return b""

    async def _get_acl(self, request: Request) -> bytes:
        acl = acl_of(self._user(request.header.subject).principal)
        return encode_body(acl) if acl.policies else b""

    async def _list_acls(self, request: Request) -> bytes:
        subject_part = request.header.subject_filter or ""
        resource_part = request.header.resource_filter or ""

        def acl(user: User) -> AclInfo | None:
            found = acl_of(user.principal, resource_part)
            return found if found.policies and subject_part in (found.subject or "") else None

        return await self._list(acl)

    def _user(self, subject: str | None) -> User:
        """Returns the user of a subject. Raises UserError."""
        access_key = access_key_of(subject)
        user = self._users.known().get(access_key)
        if user is None:
            raise UserNotExistError(access_key)
        return user

    async def _list(self, body_of: Callable[[User], Body | None]) -> bytes:
        """Returns an array of the users' bodies by access key; without any an empty body.

        Raises AnswerTooLargeError, KeptBytesError.
        """
        users, size, parts, entries = self._users.known(), AnswerSize(), list[bytes](), 0
        for access_key in sorted(users):
            principal = users[access_key].principal
            entries += 1 + len(principal.topics.entries) + len(principal.groups.entries)
            if entries > ENTRIES_A_SLOT:
                await take_slot("admin")
                entries = 0
            body = body_of(users[access_key])
            if body is not None:
                parts.append(encode_body(body))
                size.add(len(parts[-1]) + 1)
        return b"[%s]" % b",".join(parts) if parts else b""


def _username(request: Request) -> str:
    """Returns the name of the request's user. Raises ParameterIllegalError."""
    username = str(request.header.username or "")
    if not username.strip():
        raise ParameterIllegalError("username", username, "the name of a user")
    return username


async def _user_of(request: Request) -> admin_pb2.User:
    """Returns the change of a user; a blank password leaves it unchanged.

    Raises UserError, ParameterIllegalError, RemotingFormatError.
    """
    change = admin_pb2.User(access_key=_username(request))
    info: UserInfo = await request.bounded_body(BODY_BYTES_MAX)
    if info.password and not info.password.isspace():
        change.secret_key = info.password
    if info.user_type:
        change.role = chosen("userType", info.user_type, ROLES).value
    if info.user_status:
        change.enabled = chosen("userStatus", info.user_status, STATUSES)
    return change


def _info(user: User) -> UserInfo:
    principal = user.principal
    type_, status = _TYPES[principal.role], _STATUS_NAMES[user.is_enabled]
    return UserInfo(principal.access_key, user.secret_key, type_, status)
