"""Builds the room of topics. Holds no state."""

from __future__ import annotations

from rocketpy_broker.services.context import Ground
from rocketpy_broker.services.topics.manager import TopicConfigManager


def build(ground: Ground) -> TopicConfigManager:
    """The topics of one broker."""
    config = ground.config
    manager = TopicConfigManager(
        config.config_folder,
        ground.clock,
        config.cluster_name,
        config.broker_name,
        config.system_topics,
        enable_mixed_message_type=config.enable_mixed_message_type,
    )
    ground.lifecycle.loads.append(manager.load)
    ground.lifecycle.tables.append(manager.saver)
    return manager
