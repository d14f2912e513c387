"""Values of services as RocketMQ's clients read them."""

from __future__ import annotations

from rocketpy_broker.services.admin.pages import shown
from rocketpy_broker.services.groups.clients.subscriptions import Subscription
from rocketpy_broker.services.groups.config import SubscriptionGroupConfig
from rocketpy_broker.services.topics.config import TopicConfig
from rocketpy_proto.model.consumers import EVERYTHING, OR, TAG
from rocketpy_proto.record import java_hash
from rocketpy_proto.remoting.bodies import configs
from rocketpy_proto.remoting.bodies.clients import SubscriptionData

# Longer expressions are sent without their tags.
TAGS_CHARACTERS_MAX = 255
# Fields of a group in the body of a request or an answer, and in its configuration.
GROUP_FIELDS = {
    "is_consume_enabled": "consume_enable",
    "is_consume_from_min_enabled": "consume_from_min_enable",
    "is_consume_broadcast_enabled": "consume_broadcast_enable",
    "is_consumed_orderly": "consume_message_orderly",
    "retry_queue_nums": "retry_queue_nums",
    "retry_max_times": "retry_max_times",
    "broker_id": "broker_id",
    "which_broker_when_consume_slowly": "which_broker_when_consume_slowly",
    "is_consumer_ids_change_notified": "notify_consumer_ids_changed_enable",
    "group_sys_flag": "group_sys_flag",
    "consume_timeout_minutes": "consume_timeout_minute",
}


def topic_body(config: TopicConfig) -> configs.TopicConfig:
    """Returns a topic's configuration as RocketMQ's clients read it."""
    return configs.TopicConfig(
        shown(config.topic),
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        shown(config.topic_filter_type),
        config.topic_sys_flag,
        config.order,
        {shown(key): shown(config.attributes[key]) for key in config.attributes},
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


def group_body(config: SubscriptionGroupConfig) -> configs.SubscriptionGroupConfig:
    """Returns a group's configuration as RocketMQ's clients read it."""
    return configs.SubscriptionGroupConfig(
        shown(config.group),
        group_retry_policy=dict(config.group_retry_policy),
        attributes={shown(key): shown(config.attributes[key]) for key in config.attributes},
        **{field: getattr(config, name) for field, name in GROUP_FIELDS.items()},
    )
