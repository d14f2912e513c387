"""Builds the room of pulls. Holds no state."""

from __future__ import annotations

from dataclasses import dataclass

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.pulling.holding import HeldCalls
from rocketpy_broker.services.pulling.key_lookup import KeyLookupService
from rocketpy_broker.services.pulling.range_limits import RangeLimitService
from rocketpy_broker.services.pulling.service import PullService
from rocketpy_broker.services.topics.manager import TopicConfigManager


@dataclass(frozen=True, slots=True)
class Pulling:
    """Pulls, the calls that wait for messages, and what narrows ranges of queues."""

    held: HeldCalls
    pulls: PullService
    range_limits: RangeLimitService
    key_lookup: KeyLookupService


def build(ground: Ground, topics: TopicConfigManager) -> Pulling:
    """Pulls of one broker. A message that is dispatched wakes the calls that wait for it."""
    config, store = ground.config, ground.store
    held = HeldCalls(ground.clock)
    store.on_dispatch(held.wake)
    topics.on_change(held.wake_for_topics)
    ground.lifecycle.stops.append(held.stop)
    pulls = PullService(
        store, topics, held, config.limits, slave_read_enable=config.slave_read_enable
    )
    return Pulling(
        held,
        pulls,
        RangeLimitService(store, topics, ground.clock),
        KeyLookupService(store, topics, ground.clock),
    )
