"""The services of a broker, built from the context, and their protocols."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.apache_v2.access import ApacheV2Access
from rocketpy_broker.server.apache_v2.clients import ApacheClients
from rocketpy_broker.server.apache_v2.servicers.assignment_servicer import AssignmentServicer
from rocketpy_broker.server.apache_v2.servicers.client_servicer import ClientServicer
from rocketpy_broker.server.apache_v2.servicers.consumer_servicer import ConsumerServicer
from rocketpy_broker.server.apache_v2.servicers.queue_servicer import QueueServicer
from rocketpy_broker.server.apache_v2.servicers.route_servicer import RouteServicer
from rocketpy_broker.server.apache_v2.servicers.send_servicer import SendServicer
from rocketpy_broker.server.apache_v2.servicers.telemetry_commands import TelemetryCommands
from rocketpy_broker.server.apache_v2.servicers.telemetry_servicer import TelemetryServicer
from rocketpy_broker.server.apache_v2.servicers.transaction_servicer import TransactionServicer
from rocketpy_broker.server.apache_v2.services import ApacheV2Services
from rocketpy_broker.server.apache_v2.services import Servicer as ApacheServicer
from rocketpy_broker.server.calls import writes
from rocketpy_broker.server.ha.client import HaClient
from rocketpy_broker.server.remoting.client import RemotingClient
from rocketpy_broker.server.remoting.clients import RemotingClients
from rocketpy_broker.server.remoting.processors.auth.processor import AuthProcessor
from rocketpy_broker.server.remoting.processors.client_processor import ClientProcessor
from rocketpy_broker.server.remoting.processors.forward_processor import ForwardProcessor
from rocketpy_broker.server.remoting.processors.group_processor import GroupProcessor
from rocketpy_broker.server.remoting.processors.lookup_processor import LookupProcessor
from rocketpy_broker.server.remoting.processors.offset_processor import OffsetProcessor
from rocketpy_broker.server.remoting.processors.pop.ack_processor import AckProcessor
from rocketpy_broker.server.remoting.processors.pop.assignment_processor import (
    AssignmentProcessor,
)
from rocketpy_broker.server.remoting.processors.pop.message_processor import PopProcessor
from rocketpy_broker.server.remoting.processors.pull_processor import PullProcessor
from rocketpy_broker.server.remoting.processors.replication.processor import ReplicationProcessor
from rocketpy_broker.server.remoting.processors.reply_processor import ReplyProcessor
from rocketpy_broker.server.remoting.processors.retry_processor import RetryProcessor
from rocketpy_broker.server.remoting.processors.send_processor import SendProcessor
from rocketpy_broker.server.remoting.processors.status_processor import StatusProcessor
from rocketpy_broker.server.remoting.processors.topic_processor import TopicProcessor
from rocketpy_broker.server.remoting.processors.transaction_processor import TransactionProcessor
from rocketpy_broker.server.remoting.server import Processor, Processors
from rocketpy_broker.server.rocketpy_v1.servicers.admin_servicer import AdminServicer
from rocketpy_broker.server.rocketpy_v1.servicers.backup_servicer import BackupServicer
from rocketpy_broker.server.rocketpy_v1.servicers.batch_servicer import BatchServicer
from rocketpy_broker.server.rocketpy_v1.servicers.broker_servicer import BrokerServicer
from rocketpy_broker.server.rocketpy_v1.servicers.groups_servicer import GroupsServicer
from rocketpy_broker.server.rocketpy_v1.servicers.range_servicer import RangeServicer
from rocketpy_broker.server.rocketpy_v1.servicers.retry_servicer import RetryServicer
from rocketpy_broker.server.rocketpy_v1.servicers.testing_servicer import TestingServicer
from rocketpy_broker.server.rocketpy_v1.servicers.transactions_servicer import TransactionsServicer
from rocketpy_broker.server.rocketpy_v1.servicers.user_servicer import UserServicer
from rocketpy_broker.server.rocketpy_v1.services import RocketpyV1Services, Servicer
from rocketpy_broker.server.security.access_control import AccessControl
from rocketpy_broker.server.security.rocketpy_v1_access import RocketpyV1Access
from rocketpy_broker.server.security.users import UserTable
from rocketpy_broker.services.admin import wiring as admin
from rocketpy_broker.services.admin.queues.units import QueueUnitService
from rocketpy_broker.services.batches import wiring as batches
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay import wiring as delay
from rocketpy_broker.services.deliveries import wiring as deliveries
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.flush import wiring as flush
from rocketpy_broker.services.groups import wiring as groups
from rocketpy_broker.services.hooks.chain import HookChain, installed_hooks
from rocketpy_broker.services.long_polling import wiring as long_polling
from rocketpy_broker.services.observability.statistics import wiring as statistics
from rocketpy_broker.services.offsets import wiring as offsets
from rocketpy_broker.services.pull import wiring as pull
from rocketpy_broker.services.receipts import wiring as receipts
from rocketpy_broker.services.registration.addresses import host_and_port
from rocketpy_broker.services.replication import wiring as replication
from rocketpy_broker.services.retry.service import SendBackService
from rocketpy_broker.services.send.retry_sends import RetrySends
from rocketpy_broker.services.send.retry_targets import RetryTargets
from rocketpy_broker.services.send.service import SendService
from rocketpy_broker.services.slave import wiring as slave
from rocketpy_broker.services.slave.promotion import PromotionService
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.topics import wiring as topics
from rocketpy_broker.services.transactions import wiring as transactions
from rocketpy_proto.remoting import FRAME_BYTES_MAX

if TYPE_CHECKING:
    from rocketpy_broker.services.observability.metrics.service import MetricsService


class BrokerServices:
    """The broker's services, built lowest layer first from the context and lower layers."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock = context.store, context.call_clock
        self._movable = context.clock if isinstance(context.clock, MovableClock) else None
        self._message_clock, self._tasks = context.clock, context.tasks
        self.access = self._access(context)
        self.hooks = HookChain(installed_hooks())
        self.topics = topics.build(context)
        self.groups = groups.build(context, self.topics)
        self.replication = replication.build(context)
        self.flush = flush.build(context, self.replication)
        self.long_polling = long_polling.build(context, self.topics)
        self.delay = delay.build(context, self.topics, self.flush, self.long_polling)
        targets = RetryTargets(
            self.topics, self.groups.configs, self.groups.retry_topics, context.clock
        )
        self.sends = self._send_service(context, targets)
        self.filters = FilterService()
        self.offsets = offsets.build(context, self.topics, self.groups, self.long_polling.calls)
        self.pull = pull.build(
            context,
            self.topics,
            self.groups,
            self.flush,
            self.filters,
            self.long_polling.calls,
            self.offsets.offsets,
            self.hooks,
        )
        self.receipts = self._receipts(context)
        self.transactions = transactions.build(
            context, self.topics, self.groups, self.flush, self.delay, self.offsets
        )
        self.batches = batches.build(context, self.topics, self.replication, self.flush, self.sends)
        self.retry = SendBackService(
            context.store,
            targets,
            self.sends,
            self.delay.schedule,
            self.flush.group_commit,
            context.clock,
        )
        self.deliveries = deliveries.build(context, self.groups, self.receipts, self.retry)
        self.statistics = statistics.build(
            context,
            self.topics,
            self.groups,
            self.flush,
            self.delay,
            self.pull.pulls,
            self.transactions,
            self.retry,
        )
        state = self.slave_state = self._slave(context)
        self.promotion = PromotionService(context.store, self.topics, state, context.clock)
        self.metrics = None if context.config.http_port is None else self._metrics(context)
        self.admin = self._operations(context)
        self.remoting_clients = RemotingClients(self.groups.clients, context)
        self.telemetry_commands = TelemetryCommands(context.call_clock)
        self.apache_clients = ApacheClients(
            self.groups.clients, self.groups.configs, context.config, context.clock
        )

    @staticmethod
    def _access(context: BrokerContext) -> AccessControl:
        users = UserTable(context.config.users_file)

        async def start(scope: TaskScope) -> None:
            scope.start(users.follow(context.call_clock, context.config.users_check_interval_ms))

        context.lifecycle.starts.append(start)
        return AccessControl(users, context.call_clock, lambda: context.store.slave_refusal)

    def _send_service(self, context: BrokerContext, targets: RetryTargets) -> SendService:
        return SendService(
            context.store,
            self.topics,
            self.flush.group_commit,
            self.delay.schedule,
            context.clock,
            context.config,
            self.hooks,
            RetrySends(targets, self.groups.locks),
        )

    def _receipts(self, context: BrokerContext) -> receipts.Receipts:
        return receipts.build(
            context,
            self.topics,
            self.groups,
            self.flush,
            self.long_polling,
            self.delay,
            self.offsets,
            self.pull,
        )

    def _slave(self, context: BrokerContext) -> SlaveState | None:
        """Returns the state of a slave, which follows its master from the start on."""
        config, clock = context.config, context.call_clock

        def connect(address: str) -> RemotingClient:
            host, port = host_and_port(address)
            tls, user = config.name_server_tls, config.name_server_user
            return RemotingClient(host, port, clock, tls, user, FRAME_BYTES_MAX)

        def open_stream(
            host: str, port: int, receive: Callable[[int, memoryview], None]
        ) -> Awaitable[HaClient]:
            return HaClient.connect(host, port, receive, clock)

        return slave.build(
            context, self.topics, self.groups, self.flush, self.offsets, connect, open_stream
        )

    def _operations(self, context: BrokerContext) -> admin.AdminWiring:
        context.config_changed.add(self.sends.configure)
        wiring = admin.build(
            context,
            self.topics,
            self.groups,
            self.flush,
            self.long_polling,
            self.delay,
            self.offsets,
            self.transactions,
            self.statistics,
            self.replication.slaves,
            self.slave_state,
        )
        wiring.admin.topic_changed.add(self.statistics.counter.topic_changed)
        wiring.groups.group_changed.add(self.statistics.counter.group_changed)
        return wiring

    def _metrics(self, context: BrokerContext) -> MetricsService:
        """Returns the metrics service; a broker without HTTP does not load its libraries."""
        from rocketpy_broker.services.observability.metrics import wiring as metrics

        service = metrics.build(
            context,
            self.topics,
            self.groups,
            self.long_polling,
            self.delay,
            self.offsets,
            self.transactions,
            self.statistics.counter,
        )
        if (state := self.slave_state) is not None:
            positions = context.store.positions
            service.watch("rocketpy_replication_connected", lambda: state.is_connected)
            service.watch(
                "rocketpy_replication_lag_bytes", lambda: state.lag_bytes(positions().log_end)
            )
        return service

    def rocketpy_v1(self, config: BrokerConfig) -> RocketpyV1Services:
        """Returns the services of rocketpy's own protocol, `rocketpy.v1`."""
        store, group_commit = self._store, self.flush.group_commit
        administration = self.admin
        servicers: dict[str, list[Servicer]] = {
            "Broker": [
                BrokerServicer(
                    store,
                    self.sends,
                    self.pull.pulls,
                    self.filters,
                    self.offsets.offsets,
                    self.offsets.queries,
                    self.delay.recall,
                    config.limits.appends_in_flight_max,
                    self._clock,
                    None if self.metrics is None else self.statistics.counter.appended,
                ),
                BatchServicer(store, self.batches.staging, self.batches.commits),
                RangeServicer(store, self.pull.range_limits, self.pull.key_lookup),
            ],
            "Admin": [
                AdminServicer(
                    administration.admin,
                    administration.store_admin,
                    administration.status,
                    self.statistics,
                    administration.history,
                    self.promotion,
                ),
                BackupServicer(administration.backups, store.config),
                UserServicer(self.access.users),
            ],
            "Transactions": [
                TransactionsServicer(self.transactions.service, self.transactions.listing)
            ],
            "Groups": [
                GroupsServicer(
                    self.groups.clients,
                    self.groups.locks,
                    config.limits.clients,
                    administration.group_listing,
                    administration.groups,
                    self.offsets.resetting,
                )
            ],
            "Retry": [RetryServicer(self.retry)],
        }
        if self._movable is not None:
            servicers["Testing"] = [
                TestingServicer(
                    self._movable, store, group_commit, administration.admin, self.batches
                )
            ]
        bytes_max = config.limits.clients.request_bytes_max
        return RocketpyV1Services(servicers, bytes_max, RocketpyV1Access(self.access))

    def apache_v2(self, config: BrokerConfig) -> ApacheV2Services:
        """Returns the services of RocketMQ's gRPC protocol."""
        return ApacheV2Services(self._apache_servicers(config), ApacheV2Access(self.access))

    def _apache_servicers(self, config: BrokerConfig) -> list[ApacheServicer]:
        """Returns the servicers for RocketMQ's SDKs."""
        return [
            RouteServicer(self.topics, config),
            ClientServicer(self.apache_clients),
            TelemetryServicer(self.apache_clients, self.telemetry_commands, self._clock),
            SendServicer(
                self.sends,
                self.delay.recall,
                self.topics,
                self.apache_clients,
                config,
                self._message_clock,
            ),
            TransactionServicer(self.transactions.service),
            *self._apache_consumer_servicers(config),
        ]

    def _apache_consumer_servicers(self, config: BrokerConfig) -> list[ApacheServicer]:
        """Returns the servicers for consumers with RocketMQ's SDKs."""
        pulls, clients, clock = self.pull.pulls, self.apache_clients, self._message_clock
        return [
            AssignmentServicer(self.topics, self.groups.configs, config),
            ConsumerServicer(self.deliveries, clients, pulls.unread, clock),
            QueueServicer(pulls, self.offsets.offsets, self.topics, clock),
        ]

    def processors(self, config: BrokerConfig) -> Mapping[int, Processor]:
        """Returns the processors of remoting requests, by code."""
        clients, remote = self.groups.clients, self.remoting_clients
        sends = SendProcessor(self._store, self.sends, self.delay.recall, config, self._clock)
        parts: list[Processors] = [
            sends,
            PullProcessor(self.pull.pulls, config),
            ClientProcessor(
                clients, remote, self.groups.locks, self.filters, config.limits.clients
            ),
            ForwardProcessor(
                clients, remote, self.telemetry_commands, self.admin.store_admin, config
            ),
            ReplyProcessor(sends.store, remote, self._store, self._clock),
            OffsetProcessor(self.offsets, self.delay.progress, config),
            LookupProcessor(self._store),
            TransactionProcessor(self.transactions.service),
            RetryProcessor(self.retry),
            PopProcessor(self.receipts.pops, config, self._clock),
            AckProcessor(self.receipts.acks, config),
            AssignmentProcessor(
                self.receipts.assignments, self.receipts.modes, config.limits.clients
            ),
            *self._admin_processors(config),
        ]
        found = {code: each for part in parts for code, each in part.by_code().items()}
        if config.replication.is_slave:
            return writes.checked(found, self.access.check_write)
        return found

    def _admin_processors(self, config: BrokerConfig) -> list[Processors]:
        """Returns the processors of RocketMQ's tools."""
        store, admin, progress = self._store, self.admin, self.admin.consume_progress
        units = QueueUnitService(store, self.topics, self.filters)
        return [
            TopicProcessor(
                self.topics, store, admin.admin, progress, units, self.statistics, config
            ),
            GroupProcessor(self.groups.configs, self.topics, admin.groups, progress, config),
            StatusProcessor(
                store,
                admin.admin,
                admin.store_admin,
                admin.status,
                self.statistics,
                admin.settings,
                self.replication.slaves,
                self.slave_state,
            ),
            ReplicationProcessor(store, self.topics, self.batches.files),
            AuthProcessor(self.access.users),
        ]
