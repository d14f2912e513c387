"""Wiring of offsets: committed offsets, queries and resets."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver, save_now
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.queries import OffsetQueryService
from rocketpy_broker.services.offsets.reset_service import ResetService
from rocketpy_broker.services.offsets.scan import OffsetScan
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of queues and groups."""

    committed: ConsumerOffsetManager
    offsets: OffsetService
    queries: OffsetQueryService
    resetting: ResetService
    saver: Saver


def build(
    context: BrokerContext, topics: TopicConfigManager, groups: Groups, held: LongPollWaiters
) -> Offsets:
    """Returns the offset services of one broker."""
    committed = ConsumerOffsetManager(context.config.config_folder, context.clock)
    scan = OffsetScan(
        committed, groups.clients.consumers.is_subscribed, context.store.range_of, context.clock
    )

    def load() -> None:
        committed.load()
        committed.set_back(context.store.range_of)
        save_now(committed)

    async def start(scope: TaskScope) -> None:
        scope.start(scan.run())

    context.lifecycle.starts.append(start)
    context.lifecycle.loads.append(load)
    saver = Saver(committed)
    context.lifecycle.tables.append(saver)
    return Offsets(
        committed,
        OffsetService(context.store, topics, groups, committed, context.clock),
        OffsetQueryService(context.store, topics, held, context.config.limits),
        ResetService(context.store, topics, groups, committed, saver, context.tasks),
        saver,
    )
