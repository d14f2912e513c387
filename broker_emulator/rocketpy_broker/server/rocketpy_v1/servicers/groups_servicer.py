"""The servicer of rocketpy.v1.Groups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.rocketpy_v1 import status
from rocketpy_broker.server.rocketpy_v1.handlers import all_bounded, decoder
from rocketpy_broker.services.admin.group_admin_service import GroupAdminService
from rocketpy_broker.services.admin.group_list import GroupListing
from rocketpy_broker.services.admin.pages import page_count
from rocketpy_broker.services.groups.clients.consumers import (
    ConsumerData,
    ConsumerGroup,
    consumers_of,
)
from rocketpy_broker.services.groups.clients.producers import producers_of
from rocketpy_broker.services.groups.clients.registry import ClientService, Heartbeat, check_counts
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.offsets.reset_service import ResetService
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.rocketpy.v1 import groups_pb2

if TYPE_CHECKING:
    from rocketpy_broker.config import ClientLimits
    from rocketpy_broker.services.groups.clients.members import GroupKey, Member
    from rocketpy_broker.services.groups.locks import QueueLocks

_CONNECTIONS_A_SLOT = 1_000


class GroupsServicer:
    """The methods for clients, queue locks, notices, and group administration."""

    def __init__(
        self,
        clients: ClientService,
        locks: QueueLocks,
        limits: ClientLimits,
        listing: GroupListing,
        admin: GroupAdminService,
        resetting: ResetService,
    ) -> None:
        self._clients = clients
        self._locks = locks
        self._limits = limits
        self._listing = listing
        self._admin = admin
        self._resetting = resetting

    async def heartbeat(self, request: groups_pb2.HeartbeatRequest) -> None:
        """Registers the client in all its groups or in none."""
        check_counts(
            len(request.producer_groups) + len(request.consumers),
            (len(each.subscriptions) for each in request.consumers),
            self._limits,
        )
        heartbeat = Heartbeat(
            request.client_id,
            _address(scheduler.connection.get()),
            request.producer_groups,
            [_consumer_data(each) for each in request.consumers],
        )
        await self._clients.heartbeat(heartbeat)

    async def unregister(self, request: groups_pb2.UnregisterRequest) -> None:
        """Unregisters the client from the named groups, or from all."""
        self._clients.unregister(request.client_id, request.producer_group, request.consumer_group)

    async def list_members(
        self, request: groups_pb2.ListMembersRequest
    ) -> groups_pb2.ListMembersResponse:
        """Returns the ids of a group's members."""
        client_ids = self._clients.member_ids(request.consumer_group)
        return groups_pb2.ListMembersResponse(client_ids=client_ids)

    async def connections(
        self, request: groups_pb2.ConnectionsRequest
    ) -> groups_pb2.ConnectionsResponse:
        """Returns the connections of a consumer group, a producer group, or both."""
        count = page_count(request.count_max) if request.count_max else None
        response = groups_pb2.ConnectionsResponse()

        async def add(group: GroupKey, found: Any) -> None:
            members = self._clients.connections(group)
            begin = bisect_right(members, request.after, key=attrgetter("client_id"))
            end = len(members) if count is None else min(begin + count, len(members))
            response.has_more |= end < len(members)
            await _add_connections(found.add, members[begin:end])

        if request.consumer_group:
            group = self._clients.consumer_group(request.consumer_group)
            if group is not None:
                response.consumer_data.CopyFrom(_consumer_message(group))
            await add(consumers_of(request.consumer_group), response.consumers)
        if request.producer_group:
            await add(producers_of(request.producer_group), response.producers)
        return response

    async def lock_queues(
        self, request: groups_pb2.LockQueuesRequest
    ) -> groups_pb2.LockQueuesResponse:
        """Locks queues; returns the locked ones, without queues that another client holds."""
        self._locks.check_count(len(request.queues))
        locked = self._locks.lock(
            request.consumer_group, request.client_id, _queues(request.queues)
        )
        return groups_pb2.LockQueuesResponse(
            queues=[
                groups_pb2.LockedQueue(topic=queue.topic, queue_id=queue.queue_id)
                for queue in locked
            ],
        )

    async def unlock_queues(self, request: groups_pb2.UnlockQueuesRequest) -> None:
        """Unlocks queues that the client holds."""
        self._locks.check_count(len(request.queues))
        self._locks.unlock(request.consumer_group, request.client_id, _queues(request.queues))

    async def notices(
        self, request: groups_pb2.NoticesRequest | BrokerError, context: status.Context
    ) -> None:
        """Writes notices as they come, until the client or the broker ends the stream."""
        try:
            if isinstance(request, BrokerError):
                raise request
            stream = self._clients.open_notices(request.client_id, _address(context.peer()))
        except BrokerError as error:
            await context.write(groups_pb2.Notice(status=status.failure(error)))
            return
        try:
            await context.send_initial_metadata(())
            while (notice := await stream.next()) is not None:
                notice.status.CopyFrom(status.success())
                await context.write(notice)
        except BrokerError as error:
            await context.write(groups_pb2.Notice(status=status.failure(error)))
        finally:
            self._clients.close_notices(stream)

    def handlers(self, bytes_max: int) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Returns the handlers by method name."""
        methods: dict[str, Callable[..., Any]] = {
            "Heartbeat": self.heartbeat,
            "Unregister": self.unregister,
            "ListMembers": self.list_members,
            "Connections": self.connections,
            "LockQueues": self.lock_queues,
            "UnlockQueues": self.unlock_queues,
            "ListGroups": self._listing.groups,
            "GetGroup": self._listing.get,
            "ListGroupTopics": self._listing.topics,
            "ListClients": self._listing.clients,
            "UpdateGroup": self._admin.update,
            "DeleteGroup": self._admin.delete,
            "ResetOffsets": self._resetting.reset,
        }
        return {
            "Notices": grpc.unary_stream_rpc_method_handler(
                self.notices,
                request_deserializer=decoder(groups_pb2.NoticesRequest, bytes_max),
                response_serializer=groups_pb2.Notice.SerializeToString,
            ),
            **all_bounded(groups_pb2, methods, bytes_max),
        }


def _address(peer: str) -> str:
    """Returns host:port of the caller.

    gRPC writes it as `ipv4:127.0.0.1:50123` or `ipv6:%5B::1%5D:50123`.
    """
    return unquote(peer).partition(":")[2]


def _consumer_data(data: groups_pb2.ConsumerData) -> ConsumerData:
    """Returns the registry's form of a consumer. Raises ParameterIllegalError."""
    return ConsumerData(
        data.consumer_group,
        ConsumeType[_name("consume_type", groups_pb2.ConsumeType, data.consume_type)],
        MessageModel[_name("message_model", groups_pb2.MessageModel, data.message_model)],
        ConsumeFromWhere[
            _name("consume_from_where", groups_pb2.ConsumeFromWhere, data.consume_from_where)
        ],
        [
            Subscription.of(each.topic, each.expression_type, each.expression, each.sub_version)
            for each in data.subscriptions
        ],
        data.unit_mode,
    )


def _name(field: str, kind: Any, value: int) -> str:
    """Returns the name of an enum's number. Raises ParameterIllegalError."""
    names: dict[int, str] = {number: name for name, number in kind.items() if number}
    if value not in names:
        accepted = ", ".join(f"{name} ({number})" for number, name in names.items())
        raise ParameterIllegalError(field, value, accepted)
    return names[value]


def _consumer_message(group: ConsumerGroup) -> groups_pb2.ConsumerData:
    latest = group.latest
    return groups_pb2.ConsumerData(
        consumer_group=latest.group,
        consume_type=latest.consume_type.name,
        message_model=latest.message_model.name,
        consume_from_where=latest.consume_from_where.name,
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
    for first in range(0, len(members), _CONNECTIONS_A_SLOT):
        for member in members[first : first + _CONNECTIONS_A_SLOT]:
            add(
                client_id=member.client_id,
                address=member.address,
                last_update_ms=member.last_update_ms,
                language=member.version.language.name,
                version=member.version.number,
            )
        await take_slot()


def _queues(queues: Sequence[groups_pb2.LockedQueue]) -> list[QueueKey]:
    return [QueueKey(queue.topic, queue.queue_id) for queue in queues]
