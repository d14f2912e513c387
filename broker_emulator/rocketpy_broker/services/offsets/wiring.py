"""Builds the room of offsets. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.runtime.tasks import TaskScope
from rocketpy_broker.services.config_files.saver import Saver, save_now
from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.waiters import HeldCalls
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


def build(ground: Ground, topics: TopicConfigManager, groups: Groups, held: HeldCalls) -> Offsets:
    """Offsets of one broker."""
    committed = ConsumerOffsetManager(ground.config.config_folder, ground.clock)
    scan = OffsetScan(
        committed, groups.clients.consumers.is_subscribed, ground.store.range_of, ground.clock
    )

    def load() -> None:
        committed.load()
        committed.set_back(ground.store.range_of)
        save_now(committed)

    async def start(scope: TaskScope) -> None:
        scope.start(scan.run())

    ground.lifecycle.starts.append(start)
    ground.lifecycle.loads.append(load)
    saver = Saver(committed)
    ground.lifecycle.tables.append(saver)
    return Offsets(
        committed,
        OffsetService(ground.store, topics, groups, committed, ground.clock),
        OffsetQueryService(ground.store, topics, held, ground.config.limits),
        ResetService(ground.store, topics, groups, committed, saver, ground.tasks),
        saver,
    )
