"""The servicer of users, a part of rocketpy.v1.Admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded
from rocketpy_broker.server.security.users import UserTable
from rocketpy_proto.rocketpy.v1 import admin_pb2


class UserServicer:
    """The methods that list, create, change and delete users."""

    def __init__(self, users: UserTable) -> None:
        self._users = users

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "UpdateUser": self._update,
            "DeleteUser": lambda request: self._users.remove(request.access_key),
            "ListUsers": self._list,
        }
        return all_bounded(admin_pb2, methods, bytes_max)

    async def _update(self, request: admin_pb2.UpdateUserRequest) -> admin_pb2.UpdateUserResponse:
        """Returns the user as it is now. Raises UserError."""
        user = await self._users.update(request.user, create=request.create)
        return admin_pb2.UpdateUserResponse(user=user)

    async def _list(self, _request: admin_pb2.ListUsersRequest) -> admin_pb2.ListUsersResponse:
        return admin_pb2.ListUsersResponse(users=self._users.messages())
