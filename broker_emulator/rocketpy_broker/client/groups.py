"""Clients in groups: heartbeats, members, queue locks and the broker's notices.

State: an open stream of notices. The broker removes a client 120 seconds after its last heartbeat,
and at once when its stream ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import grpc

from rocketpy_broker.client.connection import BrokerConnection, raise_refusal
from rocketpy_proto.rocketpy.v1 import groups_pb2


def consumer(
    group: str, subscriptions: Sequence[groups_pb2.Subscription] = ()
) -> groups_pb2.ConsumerData:
    """Returns a consumer group as its client describes it, with a push consumer's defaults."""
    return groups_pb2.ConsumerData(
        consumer_group=group,
        consume_type=groups_pb2.CONSUME_PASSIVELY,
        message_model=groups_pb2.CLUSTERING,
        consume_from_where=groups_pb2.CONSUME_FROM_LAST_OFFSET,
        subscriptions=subscriptions,
    )


def heartbeat(
    connection: BrokerConnection,
    client_id: str,
    *,
    consumers: Sequence[groups_pb2.ConsumerData] = (),
    producer_groups: Sequence[str] = (),
) -> None:
    """Joins groups or renews memberships.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.HeartbeatRequest(
        client_id=client_id, producer_groups=producer_groups, consumers=consumers
    )
    connection.ask(connection.groups.Heartbeat, request)


def unregister(
    connection: BrokerConnection,
    client_id: str,
    *,
    consumer_group: str = "",
    producer_group: str = "",
) -> None:
    """Leaves the named groups, or else all groups.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.UnregisterRequest(
        client_id=client_id, consumer_group=consumer_group, producer_group=producer_group
    )
    connection.ask(connection.groups.Unregister, request)


def list_members(connection: BrokerConnection, group: str) -> list[str]:
    """Returns the sorted ids of a consumer group's clients.

    Raises UnreachableError, CallFailedError, and RefusedError also for a group without clients.
    """
    request = groups_pb2.ListMembersRequest(consumer_group=group)
    return list(connection.ask(connection.groups.ListMembers, request).client_ids)


def list_connections(connection: BrokerConnection, group: str) -> groups_pb2.ConnectionsResponse:
    """Returns the consumers and producers of a group name, and the consumers' subscriptions.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.ConnectionsRequest(consumer_group=group, producer_group=group)
    answer: groups_pb2.ConnectionsResponse = connection.ask(connection.groups.Connections, request)
    return answer


def lock_queues(
    connection: BrokerConnection,
    client_id: str,
    group: str,
    queues: Sequence[groups_pb2.LockedQueue],
) -> list[groups_pb2.LockedQueue]:
    """Locks queues for 60 seconds or renews the locks; returns the queues that the client holds.

    Raises UnreachableError, CallFailedError, RefusedError.
    """
    request = groups_pb2.LockQueuesRequest(consumer_group=group, client_id=client_id, queues=queues)
    return list(connection.ask(connection.groups.LockQueues, request).queues)


def unlock_queues(
    connection: BrokerConnection,
    client_id: str,
    group: str,
    queues: Sequence[groups_pb2.LockedQueue],
) -> None:
    """Releases locks of queues. Raises UnreachableError, CallFailedError, RefusedError."""
    request = groups_pb2.UnlockQueuesRequest(
        consumer_group=group, client_id=client_id, queues=queues
    )
    connection.ask(connection.groups.UnlockQueues, request)


@contextmanager
def listening(
    connection: BrokerConnection, client_id: str
) -> Iterator[Iterator[groups_pb2.Notice]]:
    """Yields an iterator over the broker's notices to a client.

    The notices end when the broker stops. The broker removes the client when the block ends.
    Raises UnreachableError, CallFailedError, RefusedError.
    """
    with connection.faults():
        call = connection.groups.Notices(groups_pb2.NoticesRequest(client_id=client_id))
        try:
            # Returns when the broker has the stream; it also returns, empty, if the call failed.
            call.initial_metadata()
            if not call.is_active() and call.code() is not grpc.StatusCode.OK:
                raise call
            yield _checked(call)
        finally:
            call.cancel()


def _checked(call: Iterator[groups_pb2.Notice]) -> Iterator[groups_pb2.Notice]:
    for notice in call:
        raise_refusal(notice.status)
        yield notice
