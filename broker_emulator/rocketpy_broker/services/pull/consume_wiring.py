"""Builds the room of groups' pulls. Holds no state."""

from __future__ import annotations

from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.flush.wiring import Flushing
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.pull.consume_service import ConsumeService
from rocketpy_broker.services.pull.moved_events import MovedOffsetEvents
from rocketpy_broker.services.pull.wiring import Pulling


def build(
    ground: Ground,
    groups: Groups,
    flushing: Flushing,
    pulling: Pulling,
    offsets: OffsetService,
    hooks: HookChain,
) -> ConsumeService:
    """Pulls of one broker's clients."""
    config = ground.config
    events = MovedOffsetEvents(
        ground.store, flushing.group_commit, ground.clock, config.broker_name
    )
    return ConsumeService(
        pulling,
        groups.configs,
        offsets,
        events,
        hooks,
        ground.clock,
        slave_read_enable=config.slave_read_enable,
    )
