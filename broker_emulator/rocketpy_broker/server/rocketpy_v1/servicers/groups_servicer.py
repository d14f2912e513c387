"""The servicer of rocketpy.v1.Groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import grpc

from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded, decoder
from rocketpy_broker.server.rocketpy_v1.servicers.group_admin_servicer import (
    GroupAdminServicer,
    GroupAdminServices,
)
from rocketpy_broker.services.groups.client_stream import MembersChanged, Notice
from rocketpy_broker.services.groups.clients.consumers import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerGroup,
    ConsumeType,
    MessageModel,
    as_enum,
    consumers_of,
)
from rocketpy_broker.services.groups.clients.producers import producers_of
from rocketpy_broker.services.groups.clients.registry import ClientService, Heartbeat, check_counts
from rocketpy_broker.services.groups.clients.subscriptions import EVERYTHING, TAG, Subscription
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.rocketpy.v1 import groups_pb2

if TYPE_CHECKING:
    from rocketpy_broker.config import ClientLimits
    from rocketpy_broker.services.groups.clients.members import Member
    from rocketpy_broker.services.groups.locks import QueueLocks

SERVICE_NAME: str = groups_pb2.DESCRIPTOR.services_by_name["Groups"].full_name
_CONNECTIONS_A_TURN = 1_000


@dataclass(frozen=True, slots=True)
class GroupServices:
    """The services that the groups servicer calls."""

    clients: ClientService
    locks: QueueLocks
    limits: ClientLimits
    admin: GroupAdminServices


class GroupsServicer:
    """The methods for clients, queue locks, notices, and group administration."""

    def __init__(self, services: GroupServices) -> None:
        self._clients = services.clients
        self._locks = services.locks
        self._limits = services.limits
        self._admin = GroupAdminServicer(services.admin, services.limits.request_bytes_max)

    async def heartbeat(
        self, request: groups_pb2.HeartbeatRequest, context: status.Context
    ) -> groups_pb2.HeartbeatResponse:
        """Registers the client in all its groups or in none."""
        try:
            check_counts(
                len(request.producer_groups) + len(request.consumers),
                (len(each.subscriptions) for each in request.consumers),
                self._limits,
            )
            heartbeat = Heartbeat(
                request.client_id,
                _address(context),
                request.producer_groups,
                [_consumer_data(each) for each in request.consumers],
            )
            await self._clients.heartbeat(heartbeat)
        except BrokerError as error:
            return groups_pb2.HeartbeatResponse(status=status.failure(error))
        return groups_pb2.HeartbeatResponse(status=status.success())

    async def unregister(
        self, request: groups_pb2.UnregisterRequest, _context: status.Context
    ) -> groups_pb2.UnregisterResponse:
        """Unregisters the client from the named groups, or from all."""
        try:
            self._clients.unregister(
                request.client_id, request.producer_group, request.consumer_group
            )
        except BrokerError as error:
            return groups_pb2.UnregisterResponse(status=status.failure(error))
        return groups_pb2.UnregisterResponse(status=status.success())

    async def list_members(
        self, request: groups_pb2.ListMembersRequest, _context: status.Context
    ) -> groups_pb2.ListMembersResponse:
        """Returns the ids of a group's members."""
        try:
            client_ids = self._clients.member_ids(request.consumer_group)
        except BrokerError as error:
            return groups_pb2.ListMembersResponse(status=status.failure(error))
        return groups_pb2.ListMembersResponse(status=status.success(), client_ids=client_ids)

    async def connections(
        self, request: groups_pb2.ConnectionsRequest, _context: status.Context
    ) -> groups_pb2.ConnectionsResponse:
        """Returns the connections of a consumer group, a producer group, or both."""
        response = groups_pb2.ConnectionsResponse(status=status.success())
        try:
            if request.consumer_group:
                group = self._clients.consumer_group(request.consumer_group)
                if group is not None:
                    response.consumer_data.CopyFrom(_consumer_message(group))
                consumers = self._clients.connections(consumers_of(request.consumer_group))
                await _add_connections(response.consumers.add, consumers)
            if request.producer_group:
                producers = self._clients.connections(producers_of(request.producer_group))
                await _add_connections(response.producers.add, producers)
        except BrokerError as error:
            return groups_pb2.ConnectionsResponse(status=status.failure(error))
        return response

    async def lock_queues(
        self, request: groups_pb2.LockQueuesRequest, _context: status.Context
    ) -> groups_pb2.LockQueuesResponse:
        """Locks queues; returns the locked ones, without queues that another client holds."""
        try:
            self._locks.check_count(len(request.queues))
            locked = self._locks.lock(
                request.consumer_group, request.client_id, _queues(request.queues)
            )
        except BrokerError as error:
            return groups_pb2.LockQueuesResponse(status=status.failure(error))
        return groups_pb2.LockQueuesResponse(
            status=status.success(),
            queues=[
                groups_pb2.LockedQueue(topic=queue.topic, queue_id=queue.queue_id)
                for queue in locked
            ],
        )

    async def unlock_queues(
        self, request: groups_pb2.UnlockQueuesRequest, _context: status.Context
    ) -> groups_pb2.UnlockQueuesResponse:
        """Unlocks queues that the client holds."""
        try:
            self._locks.check_count(len(request.queues))
            self._locks.unlock(request.consumer_group, request.client_id, _queues(request.queues))
        except BrokerError as error:
            return groups_pb2.UnlockQueuesResponse(status=status.failure(error))
        return groups_pb2.UnlockQueuesResponse(status=status.success())

    async def notices(
        self, request: groups_pb2.NoticesRequest | BrokerError, context: status.Context
    ) -> None:
        """Writes notices as they come, until the client or the broker ends the stream."""
        try:
            if isinstance(request, BrokerError):
                raise request
            stream = self._clients.open_notices(request.client_id, _address(context))
        except BrokerError as error:
            await context.write(groups_pb2.Notice(status=status.failure(error)))
            return
        try:
            await context.send_initial_metadata(())
            while (notice := await stream.next()) is not None:
                await context.write(_notice_message(notice))
        except BrokerError as error:
            await context.write(groups_pb2.Notice(status=status.failure(error)))
        finally:
            self._clients.close_notices(stream)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "Heartbeat": self.heartbeat,
            "Unregister": self.unregister,
            "ListMembers": self.list_members,
            "Connections": self.connections,
            "LockQueues": self.lock_queues,
            "UnlockQueues": self.unlock_queues,
        }
        bytes_max = self._limits.request_bytes_max
        return {
            "Notices": grpc.unary_stream_rpc_method_handler(
                self.notices,
                request_deserializer=decoder(groups_pb2.NoticesRequest, bytes_max),
                response_serializer=groups_pb2.Notice.SerializeToString,
            ),
            **all_bounded(groups_pb2, methods, bytes_max),
            **self._admin.handlers(),
        }


def _address(context: status.Context) -> str:
    """Returns host:port of the caller.

    gRPC writes it as `ipv4:127.0.0.1:50123` or `ipv6:%5B::1%5D:50123`.
    """
    return unquote(context.peer()).partition(":")[2]


def _consumer_data(data: groups_pb2.ConsumerData) -> ConsumerData:
    """Returns the registry's form of a consumer. Raises ParameterIllegalError."""
    return ConsumerData(
        data.consumer_group,
        as_enum("consume_type", ConsumeType, data.consume_type),
        as_enum("message_model", MessageModel, data.message_model),
        as_enum("consume_from_where", ConsumeFromWhere, data.consume_from_where),
        [_subscription(each) for each in data.subscriptions],
        data.unit_mode,
    )


def _subscription(subscription: groups_pb2.Subscription) -> Subscription:
    kind = subscription.expression_type or TAG
    expression = subscription.expression
    if kind == TAG and not expression:
        expression = EVERYTHING
    return Subscription(subscription.topic, kind, expression, subscription.sub_version)


def _consumer_message(group: ConsumerGroup) -> groups_pb2.ConsumerData:
    latest = group.latest
    return groups_pb2.ConsumerData(
        consumer_group=latest.group,
        consume_type=cast("groups_pb2.ConsumeType", latest.consume_type.value),
        message_model=cast("groups_pb2.MessageModel", latest.message_model.value),
        consume_from_where=cast("groups_pb2.ConsumeFromWhere", latest.consume_from_where.value),
        subscriptions=[
            groups_pb2.Subscription(
                topic=each.topic,
                expression_type=each.expression_type,
                expression=each.expression,
                sub_version=each.sub_version,
            )
            for each in group.subscriptions.values()
        ],
        unit_mode=latest.unit_mode,
    )


async def _add_connections(add: Callable[..., object], members: Sequence[Member]) -> None:
    for first in range(0, len(members), _CONNECTIONS_A_TURN):
        for member in members[first : first + _CONNECTIONS_A_TURN]:
            add(
                client_id=member.client_id,
                address=member.address,
                last_update_ms=member.last_update_ms,
            )
        await take_slot()


def _queues(queues: Sequence[groups_pb2.LockedQueue]) -> list[QueueKey]:
    return [QueueKey(queue.topic, queue.queue_id) for queue in queues]


def _notice_message(notice: Notice) -> groups_pb2.Notice:
    message = groups_pb2.Notice(status=status.success())
    if isinstance(notice, MembersChanged):
        message.members_changed.consumer_group = notice.group
        return message
    message.check_transaction.CopyFrom(
        groups_pb2.CheckTransaction(
            producer_group=notice.group,
            transaction_id=notice.transaction_id,
            offset_msg_id=notice.offset_msg_id,
            commit_log_offset=notice.commit_log_offset,
            queue_offset=notice.queue_offset,
            record=notice.record,
        )
    )
    return message
