"""A broker: its store, services and server, started and stopped in order.

State on disk is the store's and the configuration files'. The store's recovery repairs the files
after a crash at any point. A clean stop saves all tables and removes the abort marker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.clock import Clock, SystemClock, sleep
from rocketpy_broker.runtime.guarded_clock import GuardedClock
from rocketpy_broker.runtime.movable_clock import MovableClock
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.server.bind_address import check_host, check_port
from rocketpy_broker.server.grpc.server import GrpcServer, ProtocolServices
from rocketpy_broker.server.rocketpy_v1.servicers.admin_servicer import AdminServices
from rocketpy_broker.server.rocketpy_v1.servicers.broker_servicer import BrokerCallServices
from rocketpy_broker.server.rocketpy_v1.servicers.group_admin_servicer import GroupAdminServices
from rocketpy_broker.server.rocketpy_v1.servicers.groups_servicer import GroupServices
from rocketpy_broker.server.rocketpy_v1.servicers.retry_servicer import RetryServices
from rocketpy_broker.server.rocketpy_v1.servicers.testing_servicer import TestingServices
from rocketpy_broker.server.rocketpy_v1.services import RocketpyV1Services
from rocketpy_broker.services.admin import wiring as admin
from rocketpy_broker.services.batches import wiring as batches
from rocketpy_broker.services.config_files.saver import save_all
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay import wiring as delay
from rocketpy_broker.services.filters import wiring as filters
from rocketpy_broker.services.flush import wiring as flush
from rocketpy_broker.services.groups import wiring as groups
from rocketpy_broker.services.groups.client_stream import CheckTransaction
from rocketpy_broker.services.hooks import wiring as hooks
from rocketpy_broker.services.long_polling import wiring as long_polling
from rocketpy_broker.services.observability.statistics import wiring as statistics
from rocketpy_broker.services.offsets import wiring as offsets
from rocketpy_broker.services.pull import consume_wiring as consume
from rocketpy_broker.services.pull import wiring as pull
from rocketpy_broker.services.retry import wiring as retry
from rocketpy_broker.services.send import wiring as sending
from rocketpy_broker.services.topics import wiring as topics
from rocketpy_broker.services.transactions import wiring as transactions
from rocketpy_broker.services.transactions.check_service import CheckBack
from rocketpy_broker.store.config import StoreConfig
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.passes import RecoveryResult
from rocketpy_proto.record import Host

if TYPE_CHECKING:
    from rocketpy_broker.server.http.server import HttpServer
    from rocketpy_broker.services.observability.metrics.wiring import Metrics

LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Ready:
    """The address of a broker that serves, and the recovery result of its start.

    `http_port` is None without HTTP.
    """

    host: str
    port: int
    recovery: RecoveryResult
    http_port: int | None = None


def _store_config(config: BrokerConfig) -> StoreConfig:
    return StoreConfig(
        config.data,
        config.commit_log_segment_bytes,
        config.consume_queue_file_bytes,
        config.flush_disk_type,
        staging_bytes_max=config.staging_bytes_max,
        delay_levels=config.delay_levels,
        clean_policy=config.clean_policy,
        memory_ratio=config.access_message_in_memory_max_ratio / 100,
    )


def _store_host(config: BrokerConfig, port: int) -> Host:
    """Returns the IPv4 address written into records, as RocketMQ does by default."""
    try:
        address = ipaddress.ip_address(config.host)
    except ValueError:
        address = LOOPBACK
    known = isinstance(address, ipaddress.IPv4Address) and not address.is_unspecified
    return Host(address if known else LOOPBACK, port)


class BrokerServices:
    """The broker's services, built lowest layer first from the context and lower layers."""

    def __init__(self, context: BrokerContext) -> None:
        self._store = context.store
        self._movable = context.clock if isinstance(context.clock, MovableClock) else None
        self._clock = context.call_clock
        self.hooks = hooks.build()
        self.topics = topics.build(context)
        self.groups = groups.build(context, self.topics)
        self.flush = flush.build(context)
        self.long_polling = long_polling.build(context, self.topics)
        self.delay = delay.build(context, self.topics, self.flush, self.long_polling)
        self.appends = sending.build(
            context, self.topics, self.flush, self.delay.schedule, self.hooks
        )
        self.filters = filters.build()
        self.pull = pull.build(
            context, self.topics, self.groups, self.filters, self.long_polling.calls
        )
        self.offsets = offsets.build(context, self.topics, self.groups, self.long_polling.calls)
        self.consume = consume.build(
            context, self.groups, self.flush, self.pull, self.offsets.offsets, self.hooks
        )
        self.transactions = transactions.build(
            context, self.topics, self.flush, self.delay, self.offsets, self._ask_producer
        )
        self.batches = batches.build(context, self.topics, self.flush, self.appends)
        self.retry = retry.build(
            context, self.topics, self.groups, self.flush, self.delay.schedule, self.appends
        )
        self.statistics = statistics.build(
            context, self.topics, self.groups, self.delay, self.consume, self.retry
        )
        self.metrics = None if context.config.http_port is None else self._metrics(context)
        self.admin = self._operations(context)
        if self.metrics is not None:
            self.admin.admin.topic_changed.add(self.metrics.topic_changed)
            self.admin.groups.group_changed.add(self.metrics.group_changed)

    def _operations(self, context: BrokerContext) -> admin.AdminWiring:
        return admin.build(
            context,
            self.topics,
            self.groups,
            self.flush,
            self.long_polling,
            self.delay,
            self.offsets,
            self.transactions,
            self.statistics,
        )

    def _metrics(self, context: BrokerContext) -> Metrics:
        """Returns the metrics layer; a broker without HTTP does not load its libraries."""
        from rocketpy_broker.services.observability.metrics import wiring as metrics

        measured = metrics.Measured(
            self.topics,
            self.groups,
            self.flush,
            self.long_polling,
            self.delay,
            self.offsets,
            self.consume,
            self.transactions,
            self.statistics,
        )
        return metrics.build(context, measured)

    def _ask_producer(self, question: CheckBack) -> bool:
        """Sends a transaction check to one of the group's producers; True if one listens."""
        notice = CheckTransaction(
            question.producer_group,
            question.transaction_id,
            question.offset_msg_id,
            question.commit_log_offset,
            question.queue_offset,
            question.record,
        )
        return self.groups.clients.notify_one_producer(notice)

    def protocols(self, config: BrokerConfig) -> list[ProtocolServices]:
        """Returns the protocol services of the gRPC server."""
        requests_max = config.limits.clients.request_bytes_max
        broker = BrokerCallServices(
            self.retry.sends,
            self.batches.staging,
            self.batches.commits,
            self.filters,
            self.consume,
            self.offsets.offsets,
            self.offsets.queries,
            self.pull.range_limits,
            self.pull.key_lookup,
            self.delay.recall,
            lambda: self._store.store_id,
            self._store.check_id,
            config.limits.appends_in_flight_max,
            requests_max,
            self._clock,
            None if self.metrics is None else self.metrics.on_appended,
        )
        admin = AdminServices(
            self.admin.admin,
            self.admin.store_admin,
            self.admin.status,
            self.admin.backups,
            self.statistics,
            requests_max,
        )
        groups = GroupServices(
            self.groups.clients,
            self.groups.locks,
            config.limits.clients,
            GroupAdminServices(self.admin.group_listing, self.admin.groups, self.offsets.resetting),
        )
        retry = RetryServices(self.retry.send_backs, requests_max)
        testing = self._testing(requests_max)
        return [RocketpyV1Services(broker, admin, self.transactions, groups, retry, testing)]

    def _testing(self, requests_max: int) -> TestingServices | None:
        """Returns the testing service; None unless the broker's clock can be moved."""
        if self._movable is None:
            return None
        store, group_commit = self._store, self.flush.group_commit

        async def flushed() -> None:
            await group_commit.wait(store.positions().log_end)

        admin = self.admin.admin
        return TestingServices(self._movable, flushed, admin, self.batches, requests_max)


class Broker:
    """A broker in one event loop; `serve_until` starts it, serves and stops it."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._call_clock = self._clock = clock or GuardedClock(SystemClock())
        if config.clock_ahead_ms is not None:
            self._clock = MovableClock(self._call_clock, config.clock_ahead_ms)
        host = _store_host(config, config.port)
        self.store = MessageStore(_store_config(config), self._clock, host)
        context = BrokerContext(config, self._clock, self._call_clock, self.store)
        self._tasks = context.tasks
        self._lifecycle = context.lifecycle
        self.services = BrokerServices(context)
        self.server: GrpcServer
        self.http: HttpServer | None = None

    async def serve_until(self, stopped: asyncio.Event, ready: asyncio.Future[Ready]) -> None:
        """Serves until `stopped` is set; resolves `ready` when clients can connect.

        Raises StoreLockedError, StoreDirectoryError, ConfigFileError, PortInUseError,
        PublicBindError.
        """
        check_host(self._config)
        check_port(self._config)
        # pyarrow imports pandas at its first value; no call should wait for that.
        pa.array([0])
        recovery = self.store.open()
        try:
            for load in self._lifecycle.loads:
                load()
            with contextlib.ExitStack() as closing:
                for close in self._lifecycle.closes:
                    closing.callback(close)
                for table in self._lifecycle.tables:
                    closing.callback(table.close)
                await self._serve(recovery, stopped, ready)
            for close in self._lifecycle.clean_closes:
                close()
        finally:
            self.store.close()

    async def _serve(
        self, recovery: RecoveryResult, stopped: asyncio.Event, ready: asyncio.Future[Ready]
    ) -> None:
        metrics = self.services.metrics
        server = self.server = GrpcServer(
            self._config,
            self.services.protocols(self._config),
            self._call_clock,
            None if metrics is None else metrics.on_called,
        )
        async with self._tasks as scope:
            for start in self._lifecycle.starts:
                await start(scope)
            scope.start(self._persist_loop())
            port = await server.start(scope)
            self.store.store_host = _store_host(self._config, port)
            self.services.admin.status.serves(recovery, server.connection_count)
            try:
                http_port = await self._start_http(scope)
                ready.set_result(Ready(self._config.host, port, recovery, http_port))
                await stopped.wait()
            finally:
                if self.http is not None:
                    self.http.stopping()
                try:
                    for stop in self._lifecycle.stops:
                        stop()
                finally:
                    await server.stop()
                    if self.http is not None:
                        await self.http.stop()
        await self._save_tables()

    async def _start_http(self, scope: TaskScope) -> int | None:
        """Listens for HTTP if it is configured; returns the port. Raises PortInUseError."""
        metrics, port = self.services.metrics, self._config.http_port
        if metrics is None or port is None:
            return None
        from rocketpy_broker.server.http.server import HttpServer

        running = self.server.guard
        metrics.service.watch(
            "rocketpy_running_calls", "Calls that are running.", lambda: running.running
        )
        admin = self.services.admin.admin
        self.http = HttpServer(
            self._config.host, port, metrics.service.text, lambda: admin.refusal, self._call_clock
        )
        return await self.http.start(scope)

    async def _persist_loop(self) -> None:
        while True:
            await sleep(self._clock, self._config.persist_interval_ms)
            with contextlib.suppress(OSError):
                await self._save_tables()

    async def _save_tables(self) -> None:
        """Saves all tables unless the store's lock is lost to another broker. Raises OSError."""
        if not self.store.is_lost:
            await save_all(self._lifecycle.tables)
