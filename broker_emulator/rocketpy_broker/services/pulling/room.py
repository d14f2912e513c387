"""Builds the room of pulls. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.filters.service import FilterService
from rocketpy_broker.services.groups.room import Groups
from rocketpy_broker.services.holding.calls import HeldCalls
from rocketpy_broker.services.pulling.checks import PullChecks
from rocketpy_broker.services.pulling.key_lookup import KeyLookupService
from rocketpy_broker.services.pulling.range_limits import RangeLimitService
from rocketpy_broker.services.pulling.service import PullService
from rocketpy_broker.services.pulling.unread import UnreadAnswers
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
