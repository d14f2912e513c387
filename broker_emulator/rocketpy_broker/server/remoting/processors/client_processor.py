"""Clients of groups: heartbeats, members, connections, queue locks.

A RocketMQ client sends a heartbeat with all its groups every 30 seconds. The client service has the
rules. A group that it refuses is left out, and the remark of the answer names the first one. A
heartbeat is refused if all its groups are.
Source: ClientManageProcessor, ConsumerManageProcessor, docs/design/remoting.md sections 2.8, 4.4
and 4.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.remoting.clients import ConsumerNotOnlineError, RemotingClients
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.server.remoting.values import subscription_body
from rocketpy_broker.services.filters.service import FilterService, FilterText
from rocketpy_broker.services.groups.clients.consumers import ConsumerData, consumers_of
from rocketpy_broker.services.groups.clients.members import ClientVersion, Member
from rocketpy_broker.services.groups.clients.producers import producers_of
from rocketpy_broker.services.groups.clients.registry import ClientService, Heartbeat, check_counts
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.groups.locks import QueueLocks
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from rocketpy_proto.remoting import MessageQueue, RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies import clients as bodies
from rocketpy_proto.remoting.headers.clients import HeartbeatResponse, UnregisterClientRequest

CONNECTIONS_A_SLOT, SUBSCRIPTIONS_A_SLOT = 1_000, 100


class ClientProcessor:
    """The processor of heartbeats, of queries of groups' members, and of queue locks."""

    def __init__(
        self,
        clients: ClientService,
        remote: RemotingClients,
        locks: QueueLocks,
        filters: FilterService,
        limits: ClientLimits,
    ) -> None:
        self._clients = clients
        self._remote = remote
        self._locks = locks
        self._filters = filters
        self._limits = limits

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.HEART_BEAT: self._heartbeat,
            Code.UNREGISTER_CLIENT: self._unregister,
            Code.CHECK_CLIENT_CONFIG: self._check,
            Code.GET_CONSUMER_LIST_BY_GROUP: self._members,
            Code.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            Code.GET_PRODUCER_CONNECTION_LIST: self._producers,
            Code.LOCK_BATCH_MQ: self._lock,
            Code.UNLOCK_BATCH_MQ: self._unlock,
        }

    # --- Registration ---

    async def _heartbeat(self, request: Request) -> RemotingCommand:
        data: bodies.HeartbeatData = await request.bounded_body(self._limits.request_bytes_max)
        is_changed = not data.heartbeat_fingerprint or self._is_changed(data)
        refused: list[BrokerError] = []
        if data.producers or data.consumers:
            connection, client_id = request.connection, data.client_id
            heartbeat, refused = self._clients.without_refused(self._heartbeat_of(request, data))
            if not heartbeat.groups:
                raise refused[0]
            self._remote.link(connection, client_id)
            try:
                await self._clients.heartbeat(heartbeat)
            except BrokerError:
                self._remote.unlink_unregistered(client_id)
                raise
            # Other requests ran during the await; they may have ended the link.
            self._remote.link(connection, client_id)
            self._remote.send_waiting(client_id)
        remark = f"without refused groups: {refused[0].remark}" if refused else None
        return request.answer(HeartbeatResponse(True, is_changed), remark=remark)

    def _is_changed(self, data: bodies.HeartbeatData) -> bool:
        """True if the client has to send its subscriptions with its next heartbeat.

        Another member of the group may have sent other ones, or the broker has none.
        """
        for each in data.consumers:
            known = self._clients.consumer_group(each.group_name)
            if known is None and data.is_without_subscriptions:
                return True
            if known is not None and known.latest.fingerprint != data.heartbeat_fingerprint:
                return True
        return False

    def _heartbeat_of(self, request: Request, data: bodies.HeartbeatData) -> Heartbeat:
        """Returns the heartbeat that a body describes. Raises ParameterIllegalError."""
        check_counts(
            len(data.producers) + len(data.consumers),
            (len(each.subscriptions) for each in data.consumers),
            self._limits,
        )
        command = request.command
        return Heartbeat(
            data.client_id,
            str(request.connection.peer_host),
            [each.group_name for each in data.producers],
            [self._consumer_data(data, each) for each in data.consumers],
            ClientVersion(command.language, command.version),
        )

    def _consumer_data(
        self, data: bodies.HeartbeatData, consumer: bodies.ConsumerData
    ) -> ConsumerData:
        subscriptions: Sequence[Subscription]
        if data.heartbeat_fingerprint and data.is_without_subscriptions:
            known = self._clients.consumer_group(consumer.group_name)
            subscriptions = [] if known is None else list(known.subscriptions.values())
        else:
            subscriptions = [_subscription(each) for each in consumer.subscriptions]
        return ConsumerData(
            consumer.group_name,
            bodies.named(ConsumeType, consumer.consume_type),
            bodies.named(MessageModel, consumer.message_model),
            bodies.named(ConsumeFromWhere, consumer.consume_from_where).in_use,
            subscriptions,
            consumer.is_unit_mode,
            data.heartbeat_fingerprint,
        )

    def _unregister(self, request: Request) -> RemotingCommand:
        header: UnregisterClientRequest = request.header
        producer_group, consumer_group = header.producer_group or "", header.consumer_group or ""
        # The service takes two empty names as all groups.
        if producer_group or consumer_group:
            self._clients.unregister(header.client_id, producer_group, consumer_group)
            self._remote.unlink_unregistered(header.client_id)
        return request.answer()

    async def _check(self, request: Request) -> RemotingCommand:
        body: bodies.CheckClientRequestBody = await request.bounded_body(
            self._limits.request_bytes_max
        )
        wanted = _subscription(body.subscription)
        self._filters.filter_of(FilterText(wanted.expression_type, wanted.expression))
        return request.answer()

    # --- Queries ---

    def _members(self, request: Request) -> RemotingCommand:
        ids = self._clients.member_ids(request.header.consumer_group)
        return request.answer(body=encode_body(bodies.ConsumerListBody(tuple(ids))))

    async def _consumers(self, request: Request) -> RemotingCommand:
        name = request.header.consumer_group
        members = self._clients.connections(consumers_of(name))
        group = self._clients.consumer_group(name)
        if group is None:
            raise ConsumerNotOnlineError(
                f"the consumer group[{name}] not online; start a client, or check its heartbeats"
            )
        latest, subscriptions = group.latest, group.subscriptions
        table = {}
        for number, (topic, each) in enumerate(subscriptions.items(), 1):
            table[topic] = subscription_body(each)
            if not number % SUBSCRIPTIONS_A_SLOT:
                await take_slot("connections")
        answer = bodies.ConsumerConnection(
            await _connections(members),
            table,
            latest.consume_type,
            latest.message_model,
            latest.consume_from_where,
        )
        return request.answer(body=encode_body(answer))

    async def _producers(self, request: Request) -> RemotingCommand:
        name = request.header.producer_group
        members = self._clients.connections(producers_of(name))
        if not members:
            raise BrokerError(
                f"the producer group[{name}] not exist; start a client, or check its heartbeats"
            )
        answer = bodies.ProducerConnection(await _connections(members))
        return request.answer(body=encode_body(answer))

    # --- Locks ---

    async def _lock(self, request: Request) -> RemotingCommand:
        body = await self._lock_body(request)
        locked = set(self._locks.lock(body.consumer_group, body.client_id, _keys(body.queues)))
        kept = tuple(each for each in body.queues if _key(each) in locked)
        return request.answer(body=encode_body(bodies.LockBatchResponseBody(kept)))

    async def _unlock(self, request: Request) -> RemotingCommand:
        body = await self._lock_body(request)
        self._locks.unlock(body.consumer_group, body.client_id, _keys(body.queues))
        return request.answer()

    async def _lock_body(self, request: Request) -> bodies.LockBatchRequestBody:
        body: bodies.LockBatchRequestBody = await request.bounded_body(
            self._limits.request_bytes_max
        )
        self._locks.check_count(len(body.queues))
        return body


def _subscription(data: bodies.SubscriptionData) -> Subscription:
    return Subscription.of(data.topic, data.expression_type, data.sub_string, data.sub_version_ms)


async def _connections(members: Sequence[Member]) -> tuple[bodies.Connection, ...]:
    connections: list[bodies.Connection] = []
    for first in range(0, len(members), CONNECTIONS_A_SLOT):
        if first:
            await take_slot("connections")
        connections += [
            bodies.Connection(
                each.client_id, each.address, each.version.language.name, each.version.number
            )
            for each in members[first : first + CONNECTIONS_A_SLOT]
        ]
    return tuple(connections)


def _key(queue: MessageQueue) -> QueueKey:
    return QueueKey(queue.topic, queue.queue_id)


def _keys(queues: Sequence[MessageQueue]) -> list[QueueKey]:
    return [_key(queue) for queue in queues]
