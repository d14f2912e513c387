"""Wiring of sends."""

from __future__ import annotations

from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.delay.schedule import DelaySchedule
from rocketpy_broker.services.flush.wiring import FlushServices
from rocketpy_broker.services.hooks.chain import HookChain
from rocketpy_broker.services.send.append_service import AppendService
from rocketpy_broker.services.send.destination import DestinationResolver
from rocketpy_broker.services.send.message_types import MessageTypes
from rocketpy_broker.services.send.preconditions import SendPreconditions
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(
    context: BrokerContext,
    topics: TopicConfigManager,
    flush: FlushServices,
    schedule: DelaySchedule,
    hooks: HookChain,
) -> AppendService:
    """Returns the append service of one broker, and registers its close."""
    checking = context.config.enable_topic_message_type_check
    destinations = DestinationResolver(
        schedule,
        MessageTypes(topics, is_checking=checking),
        context.store.config,
        reject_transaction_message=context.config.reject_transaction_message,
    )
    gate = SendPreconditions(topics, context.clock, context.config)
    appends = AppendService(
        context.store, topics, flush.group_commit, destinations, gate, context.config.limits, hooks
    )
    context.lifecycle.closes.append(appends.close)
    return appends
