"""Clients of `apache.rocketmq.v2`: their settings, registrations and telemetry streams.

A client is known from its settings, or after a restart of the broker from its heartbeats and
transactions. Each topic of a producer is also a producer group of which the producer is a member.
So checks of transactions reach it. State: in memory only, from a client's first call until it
terminates or is silent for EXPIRY_MS. The end of a telemetry stream does not end a client: some
SDKs open another only minutes later.
Source: GrpcClientSettingsManager, ClientActivity, docs/design/grpc_v2_semantics.md sections 4, 6.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.errors import ClientsFullError, SubscriptionGroupNotExistError
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.listeners import Listeners
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.server.apache_v2.name_rules import check_group, check_topic
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.settings import (
    CONSUMERS,
    PRODUCERS,
    check_settings,
    completed,
    unrecognized,
)
from rocketpy_broker.services.call_memory import decoded_bytes
from rocketpy_broker.services.groups.client_stream import ClientStream
from rocketpy_broker.services.groups.clients.consumers import ConsumerData
from rocketpy_broker.services.groups.clients.members import EXPIRY_MS, ClientVersion
from rocketpy_broker.services.groups.clients.registry import ClientService, Heartbeat
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.apache.rocketmq.v2 import service_pb2
from rocketpy_proto.model import SQL92, TAG
from rocketpy_proto.model.consumers import ConsumeFromWhere, ConsumeType, MessageModel

# Limits for the settings that are kept, in all and of one connection.
SETTINGS_BYTES_MAX, SETTINGS_BYTES_OF_CONNECTION = 64 << 20, 16 << 20
# Settings with more topics take a slot.
NAMES_WITHOUT_SLOT = 64
# Silent clients that each call of another client removes at most.
EXPIRED_A_CALL = 4


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client with its groups. `long_polling_ms` is the time that its settings ask for, or None.

    `settings_bytes` counts for the connection `heartbeat.address`. `seen_ms` is monotonic.
    """

    client_type: v2.ClientType
    heartbeat: Heartbeat
    long_polling_ms: int | None = None
    settings_bytes: int = 0
    seen_ms: float = 0.0


class ApacheClients:
    """The clients of the protocol by client id, the longest silent one first."""

    def __init__(
        self,
        clients: ClientService,
        groups: SubscriptionGroupManager,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._registry = clients
        self._groups = groups
        self._config = config
        self._limits = config.limits.clients
        self._clock = clock
        self._known: OrderedDict[str, KnownClient] = OrderedDict()
        self._shares = Shares(SETTINGS_BYTES_OF_CONNECTION)
        # Called with the id of each client that terminates.
        self.terminated = Listeners[[str]]()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, client_id: str) -> KnownClient | None:
        """Returns a client; None for one that is unknown or has expired."""
        known = self._known.get(client_id)
        is_silent = known is not None and known.seen_ms < self._clock.monotonic_ms() - EXPIRY_MS
        return None if is_silent else known

    async def apply_settings(self, caller: RequestContext, settings: v2.Settings) -> v2.Settings:
        """Registers a client with its settings and returns them with the broker's values.

        Raises StatusError, ParameterIllegalError, ClientsFullError.
        """
        check_settings(settings)
        names = len(settings.subscription.subscriptions) + len(settings.publishing.topics)
        if names > NAMES_WITHOUT_SLOT:
            await take_slot("settings")
        client = self._client_of(caller, settings)
        await self._register(caller, client)
        groups = client.heartbeat.consumers
        config = self._groups.find(groups[0].group) if groups else None
        return completed(settings, self._config, config, caller.language)

    async def renew(self, caller: RequestContext, request: service_pb2.HeartbeatRequest) -> None:
        """Extends the registrations of a client, which may be unknown after a restart.

        Raises StatusError, ParameterIllegalError, ClientsFullError and
        SubscriptionGroupNotExistError.
        """
        if request.client_type not in PRODUCERS | CONSUMERS:
            raise unrecognized(request.client_type)
        client = self.get(caller.client_id)
        if client is None or client.client_type != request.client_type:
            client = KnownClient(request.client_type, self._heartbeat(caller, [], []))
        consumers = client.heartbeat.consumers
        if request.client_type in CONSUMERS and (request.group.name or not consumers):
            group = caller.name_of(request.group)
            check_group(group)
            if [each.group for each in consumers] != [group]:
                data = _consumer_data(request.client_type, group, self._subscriptions(group))
                client = replace(client, heartbeat=self._heartbeat(caller, [], [data]))
        await self._register(caller, client, is_group_needed=True)

    async def note_producer(self, caller: RequestContext, topic: str) -> None:
        """Registers the client as a producer of a topic; its settings may be missing.

        Raises ParameterIllegalError, ClientsFullError.
        """
        client = self.get(caller.client_id)
        topics: Sequence[str] = () if client is None else client.heartbeat.producer_groups
        if topic in topics:
            return
        heartbeat = self._heartbeat(caller, [*topics, topic], [])
        known = client or KnownClient(v2.PRODUCER, heartbeat)
        await self._register(caller, replace(known, heartbeat=heartbeat))

    def terminate(self, caller: RequestContext) -> None:
        """Removes a client with all its registrations. Raises ParameterIllegalError."""
        self._forget(caller.client_id)
        self._registry.unregister(caller.client_id, "", "")
        self.terminated(caller.client_id)

    # --- Telemetry streams ---

    def open_stream(self, caller: RequestContext) -> ClientStream:
        """Returns a new stream of notices for a client, and ends its former one.

        Raises ParameterIllegalError, ClientsFullError.
        """
        return self._registry.open_notices(caller.client_id, caller.address)

    def close_stream(self, stream: ClientStream) -> None:
        """Closes a stream; the client keeps its registrations until they expire."""
        self._registry.close_notices(stream, leaves=False)

    # --- Registration ---

    def _client_of(self, caller: RequestContext, settings: v2.Settings) -> KnownClient:
        """Returns the client that settings describe. Raises StatusError."""
        size = decoded_bytes(settings.ByteSize())
        if settings.HasField("publishing"):
            topics = dict.fromkeys(map(caller.name_of, settings.publishing.topics))
            for topic in topics:
                check_topic(topic)
            heartbeat = self._heartbeat(caller, list(topics), [])
            return KnownClient(settings.client_type, heartbeat, settings_bytes=size)
        asked = settings.subscription
        group = caller.name_of(asked.group)
        check_group(group)
        subscriptions = [self._subscription(caller, each) for each in asked.subscriptions]
        data = _consumer_data(settings.client_type, group, subscriptions)
        polling_ms = asked.long_polling_timeout.ToMilliseconds()
        return KnownClient(
            settings.client_type,
            self._heartbeat(caller, [], [data]),
            polling_ms if polling_ms > 0 else None,
            size,
        )

    def _subscription(self, caller: RequestContext, entry: v2.SubscriptionEntry) -> Subscription:
        topic = caller.name_of(entry.topic)
        check_topic(topic)
        kind = SQL92 if entry.expression.type == v2.SQL else TAG
        version = self._clock.now_ms()
        return Subscription.of(topic, kind, entry.expression.expression, version)

    def _subscriptions(self, group: str) -> list[Subscription]:
        """Returns the subscriptions of a group's other members."""
        known = self._registry.consumer_group(group)
        return [] if known is None else list(known.subscriptions.values())

    def _heartbeat(
        self, caller: RequestContext, topics: Sequence[str], consumers: Sequence[ConsumerData]
    ) -> Heartbeat:
        version = ClientVersion(caller.language)
        return Heartbeat(caller.client_id, caller.address, topics, consumers, version)

    async def _register(
        self, caller: RequestContext, client: KnownClient, *, is_group_needed: bool = False
    ) -> None:
        heartbeat = replace(client.heartbeat, address=caller.address)
        self._drop_expired()
        self._check_space(caller, client)
        try:
            for part in self._parts(heartbeat):
                await self._registry.heartbeat(part)
        except SubscriptionGroupNotExistError:
            # A client gets its settings also for a group that an operator has yet to create.
            if is_group_needed:
                raise
        self._forget(caller.client_id)
        seen_ms = self._clock.monotonic_ms()
        self._known[caller.client_id] = replace(client, heartbeat=heartbeat, seen_ms=seen_ms)
        self._shares.change(caller.address, client.settings_bytes)

    def _parts(self, heartbeat: Heartbeat) -> Iterator[Heartbeat]:
        """Yields a heartbeat in parts, each within the limit of groups in a heartbeat."""
        if heartbeat.consumers:
            yield replace(heartbeat, producer_groups=())
        topics, count = heartbeat.producer_groups, self._limits.groups_per_heartbeat_max
        for first in range(0, len(topics), count):
            yield replace(heartbeat, producer_groups=topics[first : first + count], consumers=())

    def _check_space(self, caller: RequestContext, client: KnownClient) -> None:
        """Raises ClientsFullError if the client's settings cannot be kept."""
        known = self._known.get(caller.client_id)
        if known is None and len(self._known) >= self._limits.clients_max:
            raise ClientsFullError(
                "the number of clients", self._limits.clients_max, "stop clients, or try later"
            )
        before = 0 if known is None else known.settings_bytes
        size = client.settings_bytes - before
        if size <= 0:
            return
        is_full = self._shares.total + size > SETTINGS_BYTES_MAX
        if is_full or not self._shares.has_space(caller.address, client.settings_bytes):
            raise ClientsFullError(
                "the bytes of the settings of clients",
                SETTINGS_BYTES_MAX if is_full else SETTINGS_BYTES_OF_CONNECTION,
                "name fewer topics",
            )

    def _forget(self, client_id: str) -> None:
        known = self._known.pop(client_id, None)
        if known is not None:
            self._shares.change(known.heartbeat.address, -known.settings_bytes)

    def _drop_expired(self) -> None:
        for _ in range(EXPIRED_A_CALL):
            client_id = next(iter(self._known), "")
            if not client_id or self.get(client_id) is not None:
                return
            self._forget(client_id)


def _consumer_data(
    client_type: v2.ClientType, group: str, subscriptions: Sequence[Subscription]
) -> ConsumerData:
    is_push = client_type == v2.PUSH_CONSUMER
    return ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY if is_push else ConsumeType.CONSUME_ACTIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions,
    )
