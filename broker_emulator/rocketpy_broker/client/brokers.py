"""Calls about a broker: information, status, users, backup, promotion."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from grpc_health.v1 import health_pb2

from rocketpy_broker.client.connection import BrokerConnection, raise_refusal
from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.runtime.clock import SystemClock, pause
from rocketpy_proto.rocketpy.v1 import admin_pb2

# The longest wait for a promoted broker, which may read much of its log first.
MASTER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
SLAVE = "SLAVE"


def broker_info(connection: BrokerConnection) -> admin_pb2.GetBrokerInfoResponse:
    """Returns version, names and limits. Raises UnreachableError, CallFailedError, RefusedError."""
    answer: admin_pb2.GetBrokerInfoResponse = connection.ask(
        connection.admin.GetBrokerInfo, admin_pb2.GetBrokerInfoRequest()
    )
    return answer


def backup_store(connection: BrokerConnection) -> Iterator[admin_pb2.BackupStoreResponse]:
    """Yields a copy of the broker's store in parts.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    call = connection.admin.BackupStore(admin_pb2.BackupStoreRequest())
    try:
        with connection.faults():
            for response in call:
                raise_refusal(response.status)
                yield response
    finally:
        call.cancel()


def broker_status(connection: BrokerConnection) -> admin_pb2.GetBrokerStatusResponse:
    """Returns directories, disk space, counts of pending work, and connections.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    answer: admin_pb2.GetBrokerStatusResponse = connection.ask(
        connection.admin.GetBrokerStatus, admin_pb2.GetBrokerStatusRequest()
    )
    return answer


def promote(
    connection: BrokerConnection, *, role: str = "", force: bool = False
) -> admin_pb2.PromoteResponse:
    """Makes a slave a master, with the role ASYNC_MASTER unless `role` is given.

    `force` also promotes a slave that its master still serves.
    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = admin_pb2.PromoteRequest(force=force, broker_role=role)
    answer: admin_pb2.PromoteResponse = connection.ask(connection.admin.Promote, request)
    return answer


def await_master(connection: BrokerConnection, seconds_max: float = MASTER_SECONDS_MAX) -> bool:
    """Waits until a promoted broker serves at all its ports; False if it does not in time."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + seconds_max * 1_000
    while True:
        # The broker starts again, and refuses connections meanwhile.
        with contextlib.suppress(ClientError):
            if broker_status(connection).broker_role != SLAVE:
                status = connection.health(connection.seconds_max)
                if status == health_pb2.HealthCheckResponse.SERVING:
                    return True
        if clock.monotonic_ms() >= end_ms:
            return False
        pause(POLL_SECONDS)


def list_users(connection: BrokerConnection) -> list[admin_pb2.User]:
    """Returns all users without their secret keys.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    answer = connection.ask(connection.admin.ListUsers, admin_pb2.ListUsersRequest())
    return list(answer.users)


def update_user(
    connection: BrokerConnection, user: admin_pb2.User, *, create: bool
) -> admin_pb2.User:
    """Creates a user, or changes the fields that `user` has; returns it without its secret key.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = admin_pb2.UpdateUserRequest(user=user, create=create)
    changed: admin_pb2.User = connection.ask(connection.admin.UpdateUser, request).user
    return changed


def delete_user(connection: BrokerConnection, access_key: str) -> None:
    """Removes a user. Raises UnreachableError, CallFailedError, RefusedError."""
    connection.ask(connection.admin.DeleteUser, admin_pb2.DeleteUserRequest(access_key=access_key))
