"""Builds the room of offsets. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.config_files.saving import Saver
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.holding.calls import HeldCalls
from rocketpy_broker.services.offsets.committed import ConsumerOffsetManager
from rocketpy_broker.services.offsets.queries import OffsetQueryService
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of queues and groups."""

    committed: ConsumerOffsetManager
    offsets: OffsetService
    queries: OffsetQueryService


def build(
    ground: Ground, topics: TopicConfigManager, groups: SubscriptionGroupManager, held: HeldCalls
) -> Offsets:
    """Offsets of one broker."""
    committed = ConsumerOffsetManager(ground.config.config_folder, ground.clock)
    ground.lifecycle.loads.append(committed.load)
    ground.lifecycle.tables.append(Saver(committed))
    return Offsets(
        committed,
        OffsetService(ground.store, topics, groups, committed, ground.clock),
        OffsetQueryService(ground.store, topics, held, ground.config.limits),
    )
