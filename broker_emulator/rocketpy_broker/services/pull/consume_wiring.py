"""Wiring of clients' pulls."""

from __future__ import annotations

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.pull.consume_service import ConsumeService
from rocketpy_broker.services.pull.moved_events import MovedOffsetEvents
from rocketpy_broker.services.pull.wiring import PullServices


def build(
    context: BrokerContext,
    groups: Groups,
    flush: FlushServices,
    pull: PullServices,
    offsets: OffsetService,
    hooks: HookChain,
) -> ConsumeService:
    """Returns the service for pulls of one broker's clients."""
    config = context.config
    events = MovedOffsetEvents(context.store, flush.group_commit, context.clock, config.broker_name)
    return ConsumeService(
        pull,
        groups.configs,
        offsets,
        events,
        hooks,
        context.clock,
        slave_read_enable=config.slave_read_enable,
    )
