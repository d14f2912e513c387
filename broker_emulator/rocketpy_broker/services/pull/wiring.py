"""Wiring of pulls."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.offsets.service import OffsetService
from rocketpy_broker.services.pull.checks import PullChecks
from rocketpy_broker.services.pull.key_lookup import KeyLookupService
from rocketpy_broker.services.pull.moved_events import MovedOffsetEvents
from rocketpy_broker.services.pull.range_limits import RangeLimitService
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class PullServices:
    """The services for pulls, offset ranges and key lookups, and the checks of pulls."""

    checks: PullChecks
    pulls: PullService
    range_limits: RangeLimitService
    key_lookup: KeyLookupService


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    flush: FlushServices,
    filters: FilterService,
    held: LongPollWaiters,
    offsets: OffsetService,
    hooks: HookChain,
) -> PullServices:
    """Returns the pull services of one broker."""
    config, store, clock = context.config, context.store, context.clock
    checks = PullChecks(topics, groups, filters, config, store)
    context.config_changed.add(checks.configure)
    pulls = PullService(
        store,
        checks,
        held,
        groups.configs,
        offsets,
        MovedOffsetEvents(store, flush.group_commit, clock, config.broker_name),
        hooks,
        clock,
        slave_read_enable=config.slave_read_enable,
    )
    return PullServices(
        checks,
        pulls,
        RangeLimitService(store, topics, clock),
        KeyLookupService(store, topics, clock),
    )
