"""Builds the room of subscription groups. Holds no state."""

from __future__ import annotations

from rocketpy_broker.ground import Ground
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager


def build(ground: Ground) -> SubscriptionGroupManager:
    """The groups of one broker."""
    manager = SubscriptionGroupManager(
        ground.config.config_folder,
        ground.clock,
        auto_create_subscription_group=ground.config.auto_create_subscription_group,
    )
    ground.lifecycle.loads.append(manager.load)
    ground.lifecycle.tables.append(manager.saver)
    return manager
