"""Builds the room of pulls. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.holding.calls import HeldCalls
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.pulling.key_lookup import KeyLookupService
from rocketpy_broker.services.pulling.range_limits import RangeLimitService
from rocketpy_broker.services.pulling.service import PullService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Pulling:
    """Pulls, and what narrows ranges of queues."""

    pulls: PullService
    range_limits: RangeLimitService
    key_lookup: KeyLookupService


def build(
    ground: Ground,
    topics: TopicConfigManager,
    filters: FilterService,
    held: HeldCalls,
    hooks: HookChain,
) -> Pulling:
    """Pulls of one broker."""
    config, store = ground.config, ground.store
    pulls = PullService(
        store,
        topics,
        filters,
        held,
        config.limits,
        slave_read_enable=config.slave_read_enable,
        broker_name=config.broker_name,
        broker_permission=config.broker_permission,
        hooks=hooks,
    )
    return Pulling(
        pulls,
        RangeLimitService(store, topics, ground.clock),
        KeyLookupService(store, topics, ground.clock),
    )
