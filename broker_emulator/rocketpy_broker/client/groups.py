"""Clients in groups: heartbeats, members, queue locks and the broker's notices.

State: an open stream of notices. The broker removes a client 120 seconds after its last heartbeat,
and at once when its stream ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from rocketpy_broker.client.connection import REQUEST_SECONDS_MAX, BrokerConnection, check
from rocketpy_proto.rocketpy.v1 import groups_pb2

EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and a filter expression: tags between `||`, or a condition of SQL92."""

    topic: str
    expression: str = EVERYTHING
    expression_type: str = "TAG"
    sub_version: int = 0


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer group as its client describes it, with a push consumer's defaults."""

    group: str
    subscriptions: Sequence[Subscription] = ()
    consume_type: groups_pb2.ConsumeType = groups_pb2.CONSUME_PASSIVELY
    message_model: groups_pb2.MessageModel = groups_pb2.CLUSTERING
    consume_from_where: groups_pb2.ConsumeFromWhere = groups_pb2.CONSUME_FROM_LAST_OFFSET


@dataclass(frozen=True, slots=True)
class Client:
    """A client of a group, with address and time (ms since 1970) of its last heartbeat."""

    client_id: str
    address: str
    last_update_ms: int


@dataclass(frozen=True, slots=True)
class Clients:
    """Consumers and producers with the same group name, by client id."""

    consumers: Sequence[Client]
    producers: Sequence[Client]


@dataclass(frozen=True, slots=True)
class Connections:
    """A consumer group's clients, and the consumer data of their last heartbeat.

    The names are RocketMQ's; they are None for a group without clients.
    """

    consumers: Sequence[Client]
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: Sequence[Subscription] = ()


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A queue of a topic."""

    topic: str
    queue_id: int


def heartbeat(
    connection: BrokerConnection,
    client_id: str,
    *,
    consumers: Sequence[Consumer] = (),
    producer_groups: Sequence[str] = (),
) -> None:
    """Joins groups or renews memberships. Raises UnreachableError, RefusedError."""
    request = groups_pb2.HeartbeatRequest(
        client_id=client_id,
        producer_groups=producer_groups,
        consumers=[_consumer_message(consumer) for consumer in consumers],
    )
    connection.ask(lambda: connection.groups.Heartbeat(request, timeout=REQUEST_SECONDS_MAX))


def unregister(
    connection: BrokerConnection,
    client_id: str,
    *,
    consumer_group: str = "",
    producer_group: str = "",
) -> None:
    """Leaves the named groups, or else all groups. Raises UnreachableError, RefusedError."""
    request = groups_pb2.UnregisterRequest(
        client_id=client_id, consumer_group=consumer_group, producer_group=producer_group
    )
    connection.ask(lambda: connection.groups.Unregister(request, timeout=REQUEST_SECONDS_MAX))


def list_members(connection: BrokerConnection, group: str) -> list[str]:
    """Returns the ids of a consumer group's clients, in order.

    Raises UnreachableError, and RefusedError also for a group without clients.
    """
    request = groups_pb2.ListMembersRequest(consumer_group=group)
    response: groups_pb2.ListMembersResponse = connection.ask(
        lambda: connection.groups.ListMembers(request, timeout=REQUEST_SECONDS_MAX)
    )
    return list(response.client_ids)


def list_connections(connection: BrokerConnection, group: str) -> Connections:
    """Returns a group's consumers and subscriptions. Raises UnreachableError, RefusedError."""
    request = groups_pb2.ConnectionsRequest(consumer_group=group)
    response: groups_pb2.ConnectionsResponse = connection.ask(
        lambda: connection.groups.Connections(request, timeout=REQUEST_SECONDS_MAX)
    )
    consumers = _clients(response.consumers)
    if not response.HasField("consumer_data"):
        return Connections(consumers)
    data = response.consumer_data
    subscriptions = [
        Subscription(each.topic, each.expression, each.expression_type, each.sub_version)
        for each in data.subscriptions
    ]
    return Connections(
        consumers,
        groups_pb2.ConsumeType.Name(data.consume_type),
        groups_pb2.MessageModel.Name(data.message_model),
        groups_pb2.ConsumeFromWhere.Name(data.consume_from_where),
        sorted(subscriptions, key=lambda each: each.topic),
    )


def list_clients(connection: BrokerConnection, group: str) -> Clients:
    """Returns a group's consumers and producers. Raises UnreachableError, RefusedError."""
    request = groups_pb2.ConnectionsRequest(consumer_group=group, producer_group=group)
    response: groups_pb2.ConnectionsResponse = connection.ask(
        lambda: connection.groups.Connections(request, timeout=REQUEST_SECONDS_MAX)
    )
    return Clients(_clients(response.consumers), _clients(response.producers))


def lock_queues(
    connection: BrokerConnection, client_id: str, group: str, queues: Sequence[Queue]
) -> list[Queue]:
    """Locks queues for 60 seconds or renews the locks; returns the queues that the client holds.

    Raises UnreachableError, RefusedError.
    """
    request = groups_pb2.LockQueuesRequest(
        consumer_group=group, client_id=client_id, queues=_queue_messages(queues)
    )
    response: groups_pb2.LockQueuesResponse = connection.ask(
        lambda: connection.groups.LockQueues(request, timeout=REQUEST_SECONDS_MAX)
    )
    return [Queue(queue.topic, queue.queue_id) for queue in response.queues]


def unlock_queues(
    connection: BrokerConnection, client_id: str, group: str, queues: Sequence[Queue]
) -> None:
    """Releases locks of queues. Raises UnreachableError, RefusedError."""
    request = groups_pb2.UnlockQueuesRequest(
        consumer_group=group, client_id=client_id, queues=_queue_messages(queues)
    )
    connection.ask(lambda: connection.groups.UnlockQueues(request, timeout=REQUEST_SECONDS_MAX))


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
        check(notice.status)
        yield notice


def _consumer_message(consumer: Consumer) -> groups_pb2.ConsumerData:
    return groups_pb2.ConsumerData(
        consumer_group=consumer.group,
        consume_type=consumer.consume_type,
        message_model=consumer.message_model,
        consume_from_where=consumer.consume_from_where,
        subscriptions=[
            groups_pb2.Subscription(
                topic=each.topic,
                expression_type=each.expression_type,
                expression=each.expression,
                sub_version=each.sub_version,
            )
            for each in consumer.subscriptions
        ],
    )


def _queue_messages(queues: Sequence[Queue]) -> list[groups_pb2.LockedQueue]:
    return [groups_pb2.LockedQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]


def _clients(connections: Sequence[groups_pb2.Connection]) -> list[Client]:
    return [Client(each.client_id, each.address, each.last_update_ms) for each in connections]
