"""Wiring of the administration services."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.backup_service import BackupService
from rocketpy_broker.services.admin.broker_status import BrokerStatusService
from rocketpy_broker.services.admin.cleaning_service import CleaningService
from rocketpy_broker.services.admin.group_admin_service import GroupAdminService
from rocketpy_broker.services.admin.group_list import GroupListing
from rocketpy_broker.services.admin.queues.consume_progress import ConsumeProgressService
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.admin.topic_admin_service import TopicAdminService
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import LongPolling
from rocketpy_broker.services.observability.statistics.history import History
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.replication.slaves import SlaveTable
from rocketpy_broker.services.settings.broker_settings import BrokerSettings
from rocketpy_broker.services.slave.state import SlaveState
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions


@dataclass(frozen=True, slots=True)
class AdminWiring:
    """The administration services of one broker."""

    admin: TopicAdminService
    store_admin: StoreAdminService
    status: BrokerStatusService
    history: History
    group_listing: GroupListing
    groups: GroupAdminService
    consume_progress: ConsumeProgressService
    backups: BackupService
    settings: BrokerSettings


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    long_polling: LongPolling,
    delay: Delay,
    offsets: Offsets,
    transactions: Transactions,
    statistics: StatisticsService,
    slaves: SlaveTable,
    slave_state: SlaveState | None,
) -> AdminWiring:
    """Returns the administration of one broker, and registers its cleaning."""
    config, store, store_files = context.config, context.store, flush.store_files
    cleaning = CleaningService(store, store_files, context.clock, config)

    admission = flush.group_commit.admission
    contents = TopicContents(store_files, offsets.committed, offsets.saver)
    store_admin = StoreAdminService(
        store, contents, admission, topics, cleaning, context.tasks, statistics.speeds
    )

    def configure(changed: BrokerConfig) -> None:
        store.cleaner.policy = changed.clean_policy

    context.config_changed.add(configure)

    committed, tasks = offsets.committed, context.tasks
    listing = GroupListing(store, topics, groups, committed, context.clock)
    history = History(
        statistics.counter, config.cluster_name, groups.clients, listing.lags, context.clock
    )
    groups.configs.deleted.append(history.forget_group)

    async def start(scope: TaskScope) -> None:
        store_admin.name_unused_topics()
        scope.start(cleaning.run())
        scope.start(history.run())

    context.lifecycle.starts.append(start)
    admin = TopicAdminService(
        config,
        store,
        contents,
        admission,
        topics,
        committed,
        statistics,
        tasks,
        context.clock,
    )
    backups = BackupService(store, flush, context.lifecycle.tables, context.clock)
    context.lifecycle.closes.append(backups.close)
    return AdminWiring(
        admin,
        store_admin,
        BrokerStatusService(
            *(store, context.clock, topics, groups, long_polling, delay, transactions),
            *(slaves, slave_state, config.replication.broker_id),
        ),
        history,
        listing,
        GroupAdminService(
            admin, listing, topics, groups, committed, offsets.saver, tasks, context.clock
        ),
        ConsumeProgressService(
            store, topics, groups, committed, listing, statistics, context.clock
        ),
        backups,
        BrokerSettings(config, context.config_changed, context.clock),
    )
