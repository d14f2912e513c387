"""Builds the room of sends. Holds no state."""

from __future__ import annotations

from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.delay.schedule import Scheduling
from rocketpy_broker.services.flush.wiring import Flushing
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.send.append_service import AppendService
from rocketpy_broker.services.send.destination import Placing
from rocketpy_broker.services.send.message_types import MessageTypes
from rocketpy_broker.services.send.preconditions import SendGate
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(
    ground: Ground,
    topics: TopicConfigManager,
    flushing: Flushing,
    scheduling: Scheduling,
    hooks: HookChain,
) -> AppendService:
    """Sends of one broker."""
    checking = ground.config.enable_topic_message_type_check
    placing = Placing(
        scheduling,
        MessageTypes(topics, is_checking=checking),
        ground.store.config,
        reject_transaction_message=ground.config.reject_transaction_message,
    )
    gate = SendGate(topics, ground.clock, ground.config)
    appends = AppendService(
        ground.store, topics, flushing.group_commit, placing, gate, ground.config.limits, hooks
    )
    ground.lifecycle.closes.append(appends.close)
    return appends
