"""Wiring of pulls."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.waiters import LongPollWaiters
from rocketpy_broker.services.pull.checks import PullChecks
from rocketpy_broker.services.pull.key_lookup import KeyLookupService
from rocketpy_broker.services.pull.range_limits import RangeLimitService
from rocketpy_broker.services.pull.response_buffer import ResponseBufferLimiter
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class PullServices:
    """The services for pulls, offset ranges and key lookups."""

    checks: PullChecks
    pulls: PullService
    range_limits: RangeLimitService
    key_lookup: KeyLookupService


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    groups: Groups,
    filters: FilterService,
    held: LongPollWaiters,
) -> PullServices:
    """Returns the pull services of one broker."""
    store = context.store
    return PullServices(
        PullChecks(topics, groups, filters, context.config, store),
        PullService(store, held, ResponseBufferLimiter()),
        RangeLimitService(store, topics, context.clock),
        KeyLookupService(store, topics, context.clock),
    )
