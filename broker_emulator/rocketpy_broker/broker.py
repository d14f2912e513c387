"""One broker: the store, its services and its server, started and stopped in order.

State on disk is the store's and the configuration files'. A crash at any point leaves what the
store's recovery can mend; a clean stop saves the tables of progress and removes the abort marker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from dataclasses import dataclass

from rocketpy_broker.clock import Clock, SystemClock, sleep
from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.server.admin_servicer import AdminServicer
from rocketpy_broker.server.broker_servicer import BrokerServicer
from rocketpy_broker.server.grpc_server import GrpcServer
from rocketpy_broker.services.administration import AdminService
from rocketpy_broker.services.appending import AppendService
from rocketpy_broker.services.batch_ledger import BatchLedger
from rocketpy_broker.services.batches import BatchService
from rocketpy_broker.services.cleaning import CleaningService
from rocketpy_broker.services.consumer_offsets import ConsumerOffsetManager
from rocketpy_broker.services.delay_offsets import DelayOffsetManager
from rocketpy_broker.services.group_commit import GroupCommit
from rocketpy_broker.services.holding import HeldCalls
from rocketpy_broker.services.key_lookup import KeyLookupService
from rocketpy_broker.services.offset_questions import OffsetQuestionService
from rocketpy_broker.services.offsets import OffsetService
from rocketpy_broker.services.persisting import persist_all
from rocketpy_broker.services.pulling import PullService
from rocketpy_broker.services.range_limits import RangeLimitService
from rocketpy_broker.services.store_administration import StoreAdminService
from rocketpy_broker.services.subscription_groups import SubscriptionGroupManager
from rocketpy_broker.services.topics import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery import RecoveryResult
from rocketpy_broker.store.store_config import StoreConfig
from rocketpy_broker.store.timer_checkpoint import TIMER_QUEUE, TimerCheckpointFile
from rocketpy_broker.tasks import TaskScope
from rocketpy_proto.record import Host

logger = logging.getLogger(__name__)
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Ready:
    """A broker that serves: where, and what its start found in the store."""

    host: str
    port: int
    recovery: RecoveryResult


def _store_config(config: BrokerConfig) -> StoreConfig:
    return StoreConfig(
        config.data,
        config.commit_log_segment_bytes,
        config.consume_queue_file_bytes,
        config.flush_disk_type,
        clean_policy=config.clean_policy,
    )


def _store_host(config: BrokerConfig, port: int) -> Host:
    """The address written into records; an IPv4 one, as RocketMQ's default."""
    try:
        address = ipaddress.ip_address(config.host)
    except ValueError:
        address = LOOPBACK
    known = isinstance(address, ipaddress.IPv4Address) and not address.is_unspecified
    return Host(address if known else LOOPBACK, port)


class Broker:
    """Runs inside one event loop. Use it as `async with`, or call `serve_until`."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        folder = config.data / "config"
        self.store = MessageStore(
            _store_config(config), self._clock, _store_host(config, config.port)
        )
        self._topics = TopicConfigManager(
            folder, self._clock, config.cluster_name, config.broker_name, config.system_topics
        )
        self._groups = SubscriptionGroupManager(
            folder,
            self._clock,
            auto_create_subscription_group=config.auto_create_subscription_group,
        )
        self._consumers = ConsumerOffsetManager(folder, self._clock)
        self._delay_offsets = DelayOffsetManager(folder, self._clock)
        self._timer_checkpoint = TimerCheckpointFile(folder / "timercheck")
        self._batch_ledger = BatchLedger(
            folder, self._clock, lambda: self.store.flushed_end, config.writer_idle_ms_max
        )
        self._persisted = (
            self._groups,
            self._consumers,
            self._delay_offsets,
            self._batch_ledger,
        )
        self.held = HeldCalls(self._clock)
        self.store.on_dispatch(self.held.wake)
        self._topics.on_change(self.held.wake_for_topics)
        self.pulls = PullService(
            self.store,
            self._topics,
            self.held,
            config.limits,
            slave_read_enable=config.slave_read_enable,
        )
        self.group_commit: GroupCommit | None = None
        self.batches: BatchService | None = None
        self._cleaning = CleaningService(self.store, self._clock, config)

    def _servicers(
        self, appends: AppendService, batches: BatchService
    ) -> tuple[BrokerServicer, AdminServicer]:
        config = self._config
        offsets = OffsetService(self.store, self._topics, self._groups, self._consumers)
        questions = OffsetQuestionService(self.store, self._topics, self.held, config.limits)
        range_limits = RangeLimitService(self.store, self._topics)
        key_lookup = KeyLookupService(self.store, self._topics)
        admin = AdminService(config, self.store, self._topics, self._consumers)
        store_admin = StoreAdminService(self.store, self._topics, self._cleaning)
        in_flight_max = config.limits.appends_in_flight_max
        return (
            BrokerServicer(
                appends,
                batches,
                self.pulls,
                offsets,
                questions,
                range_limits,
                key_lookup,
                in_flight_max,
            ),
            AdminServicer(admin, store_admin),
        )

    async def serve_until(self, stopped: asyncio.Event, ready: asyncio.Future[Ready]) -> None:
        """Serve from now on until `stopped` is set; `ready` is resolved when clients may come.

        Raises StoreLockedError, StoreDirectoryError, ConfigFileError, PortInUseError.
        """
        recovery = self.store.open()
        try:
            self._topics.load()
            self._groups.load()
            self._consumers.load()
            self._delay_offsets.load(self.store.range_of)
            self._timer_checkpoint.load()
            self._batch_ledger.load()
            group_commit = self.group_commit = GroupCommit(
                self.store,
                self._clock,
                self._config.flush_disk_type,
                self._config.flush_times,
            )
            with contextlib.closing(group_commit):
                await self._serve(group_commit, recovery, stopped, ready)
            self._timer_checkpoint.close(self.store.range_of(TIMER_QUEUE), self._clock.now_ms())
        finally:
            self.store.close()

    async def _serve(
        self,
        group_commit: GroupCommit,
        recovery: RecoveryResult,
        stopped: asyncio.Event,
        ready: asyncio.Future[Ready],
    ) -> None:
        limits = self._config.limits
        appends = AppendService(self.store, self._topics, group_commit, limits)
        batches = self.batches = BatchService(
            self.store,
            self._topics,
            self._batch_ledger,
            appends,
            group_commit,
            self._clock,
            limits,
        )
        server = GrpcServer(self._config, *self._servicers(appends, batches))
        async with TaskScope() as scope:
            scope.start(group_commit.run())
            scope.start(group_commit.flush_derived_loop())
            # Clients come when every decided batch is visible.
            await batches.recover()
            scope.start(batches.run())
            scope.start(self._persist_loop())
            scope.start(self._cleaning.run())
            port = await server.start()
            self.store.store_host = _store_host(self._config, port)
            ready.set_result(Ready(self._config.host, port, recovery))
            try:
                await stopped.wait()
            finally:
                self.held.stop()
                await server.stop()
        persist_all(self._persisted)

    async def _persist_loop(self) -> None:
        while True:
            await sleep(self._clock, self._config.persist_interval_ms)
            with contextlib.suppress(OSError):
                persist_all(self._persisted)
