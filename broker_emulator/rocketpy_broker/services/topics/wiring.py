"""Wiring of topics."""

from __future__ import annotations

from rocketpy_broker.config import BrokerConfig
from rocketpy_broker.services.context import BrokerContext
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(context: BrokerContext) -> TopicConfigManager:
    """Returns the topics of one broker."""
    config = context.config
    manager = TopicConfigManager(
        config.config_folder,
        context.clock,
        config.cluster_name,
        config.broker_name,
        config.system_topics,
        enable_mixed_message_type=config.enable_mixed_message_type,
    )

    def configure(changed: BrokerConfig) -> None:
        manager.enable_mixed_message_type = changed.enable_mixed_message_type

    context.config_changed.add(configure)
    context.lifecycle.loads.append(manager.load)
    context.lifecycle.tables.append(manager.saver)
    return manager
