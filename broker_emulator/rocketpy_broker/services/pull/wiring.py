"""Builds the room of pulls. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.groups.wiring import Groups
from rocketpy_broker.services.long_polling.waiters import HeldCalls
from rocketpy_broker.services.pull.checks import PullChecks
from rocketpy_broker.services.pull.key_lookup import KeyLookupService
from rocketpy_broker.services.pull.range_limits import RangeLimitService
from rocketpy_broker.services.pull.response_buffer import UnreadAnswers
from rocketpy_broker.services.pull.service import PullService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Pulling:
    """Pulls, and what narrows ranges of queues."""

    checks: PullChecks
    pulls: PullService
    range_limits: RangeLimitService
    key_lookup: KeyLookupService


def build(
    ground: Ground,
    topics: TopicConfigManager,
    groups: Groups,
    filters: FilterService,
    held: HeldCalls,
) -> Pulling:
    """Pulls of one broker."""
    store = ground.store
    return Pulling(
        PullChecks(topics, groups, filters, ground.config, store),
        PullService(store, held, UnreadAnswers()),
        RangeLimitService(store, topics, ground.clock),
        KeyLookupService(store, topics, ground.clock),
    )
