"""Values of services as RocketMQ's clients read them."""

from __future__ import annotations

from msgspec import structs

from rocketpy_broker.services.admin.pages import shown, shown_attributes
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_proto.model import EVERYTHING, OR, TAG
from rocketpy_proto.model.configs import SubscriptionGroupConfig, TopicConfig
from rocketpy_proto.record import java_hash
from rocketpy_proto.remoting.bodies.clients import SubscriptionData

# Longer expressions are sent without their tags.
TAGS_CHARACTERS_MAX = 255


def topic_body(config: TopicConfig) -> TopicConfig:
    """Returns a topic's configuration as RocketMQ's clients read it."""
    return structs.replace(
        config,
        topic=shown(config.topic),
        topic_filter_type=shown(config.topic_filter_type),
        attributes=shown_attributes(config),
    )


def subscription_body(subscription: Subscription) -> SubscriptionData:
    """Returns a subscription as RocketMQ's clients describe it, with its tags."""
    text = subscription.expression
    is_tags = subscription.expression_type == TAG and text != EVERYTHING
    has_tags = is_tags and len(text) <= TAGS_CHARACTERS_MAX
    tags = [tag for part in text.split(OR) if (tag := part.strip())] if has_tags else []
    return SubscriptionData(
        subscription.topic,
        text,
        tuple(tags),
        tuple(map(java_hash, tags)),
        subscription.sub_version,
        subscription.expression_type,
    )


def group_body(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """Returns a group's configuration as RocketMQ's clients read it."""
    return structs.replace(config, group=shown(config.group), attributes=shown_attributes(config))
