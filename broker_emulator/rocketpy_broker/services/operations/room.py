"""Builds the room of operators' queries and orders. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.flushing.room import Flushing
from rocketpy_broker.services.offsets.room import Offsets
from rocketpy_broker.services.operations.administration import AdminService
from rocketpy_broker.services.operations.cleaning import CleaningService
from rocketpy_broker.services.operations.store_administration import StoreAdminService
from rocketpy_broker.services.statistics.service import StatisticsService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.tasks import TaskScope


@dataclass(frozen=True, slots=True)
class Operations:
    """What operators ask and order."""

    admin: AdminService
    store_admin: StoreAdminService


def build(
    ground: Ground,
    topics: TopicConfigManager,
    flushing: Flushing,
    offsets: Offsets,
    statistics: StatisticsService,
) -> Operations:
    """Administration of one broker, and its cleaning."""
    config, store, store_files = ground.config, ground.store, flushing.store_files
    cleaning = CleaningService(store, store_files, ground.clock, config)

    large_writes = flushing.group_commit.large_writes
    store_admin = StoreAdminService(
        store, store_files, large_writes, topics, cleaning, ground.tasks
    )

    async def start(scope: TaskScope) -> None:
        store_admin.name_unused_topics()
        scope.start(cleaning.run())

    ground.lifecycle.starts.append(start)
    return Operations(
        AdminService(
            config,
            store,
            store_files,
            large_writes,
            topics,
            offsets.committed,
            statistics,
            ground.tasks,
            ground.clock,
        ),
        store_admin,
    )
