"""A broker's figures and configuration for RocketMQ's tools.

Source: AdminBrokerProcessor, docs/design/remoting.md section 2.8, docs/design/cluster.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy_broker.errors import BrokerError, ParameterIllegalError
from rocketpy_broker.server.remoting.runtime_info import RuntimeInfo
from rocketpy_broker.server.remoting.server import Processor, Request
from rocketpy_broker.services.admin.broker_status import BrokerStatusService
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.services.settings.broker_settings import BrokerSettings
from rocketpy_broker.services.settings.properties import parse_properties, properties_text
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.store.cleaner import used_ratio
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_proto.model.codes import RequestCode as Code
from rocketpy_proto.remoting import RemotingCommand, encode_body
from rocketpy_proto.remoting.bodies import routes, stats
from rocketpy_proto.remoting.headers.cluster import BrokerConfigResponse
from rocketpy_proto.rocketpy.v1 import admin_pb2

CONFIG_BYTES_MAX = 65_536


class StatusProcessor:
    """The processor of figures, configuration and cleaning."""

    def __init__(
        self,
        store: MessageStore,
        admin: TopicAdminService,
        store_admin: StoreAdminService,
        status: BrokerStatusService,
        statistics: StatisticsService,
        settings: BrokerSettings,
        slaves: SlaveTable,
        slave_state: SlaveState | None,
    ) -> None:
        self._store = store
        self._admin = admin
        self._store_admin = store_admin
        self._status = status
        self._statistics = statistics
        self._settings = settings
        self._slaves = slaves
        self._slave_state = slave_state

    def by_code(self) -> Mapping[int, Processor]:
        """Returns the processors."""
        return {
            Code.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            Code.GET_BROKER_CONFIG: self._config,
            Code.UPDATE_BROKER_CONFIG: self._update_config,
            Code.VIEW_BROKER_STATS_DATA: self._stats,
            Code.GET_BROKER_HA_STATUS: self._ha_status,
            # The removal of a log segment also removes the queue units of its messages.
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired,
            Code.DELETE_EXPIRED_COMMITLOG: self._clean_expired,
            Code.CLEAN_UNUSED_TOPIC: self._clean_unused,
        }

    async def _runtime_info(self, request: Request) -> RemotingCommand:
        store, counted = self._store, self._store.statistics
        counters = await self._store_admin.statistics(admin_pb2.GetStoreStatisticsRequest())
        earliest_ms = store.messages.store_timestamp_ms(store.positions().log_begin)
        found = RuntimeInfo(
            await self._admin.broker_info(),
            await self._status.status(),
            counters,
            self._statistics.days,
            counted.put_message_count,
            counted.put_bytes,
            -1 if earliest_ms is None else earliest_ms,
            self._settings.config.start_accept_send_request_timestamp_ms,
            round(used_ratio(store.config.folder), 4),
            self._status.schedule_offsets(),
            self._status.timer_behind(),
        )
        return request.answer(body=encode_body(routes.TextTable(found.table())))

    def _config(self, request: Request) -> RemotingCommand:
        settings = self._settings
        version = encode_body(settings.version.value).decode()
        text = properties_text(settings.properties())
        return request.answer(BrokerConfigResponse(version), body=text.encode())

    def _update_config(self, request: Request) -> RemotingCommand:
        body = request.command.body
        if len(body) > CONFIG_BYTES_MAX:
            accepted = f"{CONFIG_BYTES_MAX} or fewer"
            raise ParameterIllegalError("bytes of the properties", len(body), accepted)
        self._settings.change(parse_properties(bytes(body).decode(errors="replace")))
        return request.answer()

    def _stats(self, request: Request) -> RemotingCommand:
        name, key = request.header.stats_name, request.header.stats_key
        found = self._statistics.item(name, key)
        if found is None:
            raise StatsNotExistError(name, key)
        windows = (found.minute, found.hour, found.day)
        body = stats.BrokerStatsData(*(_item(window) for window in windows))
        return request.answer(body=encode_body(body))

    def _ha_status(self, request: Request) -> RemotingCommand:
        """Returns the slaves of this master, or the master of this slave."""
        if (state := self._slave_state) is not None:
            return request.answer(body=encode_body(self._slave_status(state)))
        log_end, slaves = self._store.positions().log_end, self._slaves
        connections = tuple(
            stats.HAConnection(
                each.address,
                each.acknowledged,
                slaves.lag_of(each),
                slaves.is_near(each),
                transfer_from_where=each.next_offset,
            )
            for each in slaves.slaves
        )
        near_count = sum(each.is_in_sync for each in connections)
        client = stats.HAClientInfo()
        body = stats.HARuntimeInfo(True, log_end, near_count, connections, client)
        return request.answer(body=encode_body(body))

    def _slave_status(self, state: SlaveState) -> stats.HARuntimeInfo:
        """Returns the ends of the slave's log and of its master's log."""
        client = stats.HAClientInfo(
            state.master,
            max_offset=self._store.positions().log_end,
            master_flush_offset=state.master_end,
        )
        return stats.HARuntimeInfo(False, client=client)

    async def _clean_expired(self, request: Request) -> RemotingCommand:
        await self._store_admin.clean_expired_files()
        return request.answer()

    async def _clean_unused(self, request: Request) -> RemotingCommand:
        await self._store_admin.clean_unused_topics(admin_pb2.CleanUnusedTopicsRequest())
        return request.answer()


class StatsNotExistError(BrokerError):
    """A statistic without events."""

    def __init__(self, name: str, key: str) -> None:
        super().__init__(f"The stats <{name:.100}> <{key:.300}> not exist")


def _item(window: admin_pb2.StatisticsWindow) -> stats.BrokerStatsItem:
    return stats.BrokerStatsItem(window.sum, window.tps, window.avgpt)
