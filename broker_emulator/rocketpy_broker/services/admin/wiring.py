"""Builds the room of operators' queries and orders. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.admin.backup_service import BackupService
from rocketpy_broker.services.admin.broker_status import BrokerStatusService
from rocketpy_broker.services.admin.cleaning_service import CleaningService
from rocketpy_broker.services.admin.group_admin_service import GroupAdminService
from rocketpy_broker.services.admin.group_list import GroupListing
from rocketpy_broker.services.admin.store_admin_service import StoreAdminService
from rocketpy_broker.services.admin.topic_admin_service import AdminService
from rocketpy_broker.services.admin.topic_contents import TopicContents
from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.delay.wiring import Delay
from rocketpy_broker.services.flush.wiring import Flushing
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.wiring import Holding
from rocketpy_broker.services.observability.statistics.service import StatisticsService
from rocketpy_broker.services.offsets.wiring import Offsets
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.services.transactions.wiring import Transactions


@dataclass(frozen=True, slots=True)
class Operations:
    """What operators ask and order."""

    admin: AdminService
    store_admin: StoreAdminService
    status: BrokerStatusService
    group_listing: GroupListing
    groups: GroupAdminService
    backups: BackupService


def build(
    ground: Ground,
    topics: TopicConfigManager,
    groups: Groups,
    flushing: Flushing,
    holding: Holding,
    delay: Delay,
    offsets: Offsets,
    transactions: Transactions,
    statistics: StatisticsService,
) -> Operations:
    """Administration of one broker, and its cleaning."""
    config, store, store_files = ground.config, ground.store, flushing.store_files
    cleaning = CleaningService(store, store_files, ground.clock, config)

    large_writes = flushing.group_commit.large_writes
    contents = TopicContents(store_files, offsets.committed, offsets.saver)
    store_admin = StoreAdminService(store, contents, large_writes, topics, cleaning, ground.tasks)

    async def start(scope: TaskScope) -> None:
        store_admin.name_unused_topics()
        scope.start(cleaning.run())

    ground.lifecycle.starts.append(start)
    committed, tasks = offsets.committed, ground.tasks
    admin = AdminService(
        config,
        store,
        contents,
        large_writes,
        topics,
        committed,
        statistics,
        tasks,
        ground.clock,
    )
    backups = BackupService(store, flushing, ground.lifecycle.tables, ground.clock)
    ground.lifecycle.closes.append(backups.close)
    listing = GroupListing(store, topics, groups, committed, ground.clock)
    return Operations(
        admin,
        store_admin,
        BrokerStatusService(store, ground.clock, topics, groups, holding, delay, transactions),
        listing,
        GroupAdminService(
            admin, listing, topics, groups, committed, offsets.saver, tasks, ground.clock
        ),
        backups,
    )
