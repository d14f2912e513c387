"""Subscriptions of a consumer group, and their changes by a heartbeat.

Source: ConsumerGroupInfo, docs/design/broker_behaviour.md section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketpy_broker.config import ClientLimits
from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.services.topics.manager import TOPIC_BYTES_MAX, TOPIC_PATTERN
from rocketpy_proto.model import EVERYTHING, SQL92, TAG

# Approximate memory of a subscription without its texts.
OVERHEAD_BYTES = 300


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and the filter of its messages; the greatest `sub_version` is the newest."""

    topic: str
    expression_type: str
    expression: str
    sub_version: int

    @classmethod
    def of(
        cls, topic: str, expression_type: str, expression: str, sub_version: int
    ) -> Subscription:
        """Returns the subscription of a request; a request without a filter asks for all."""
        kind = expression_type or TAG
        is_all = kind == TAG and not expression
        return cls(topic, kind, EVERYTHING if is_all else expression, sub_version)

    @property
    def bytes(self) -> int:
        """The memory of the subscription."""
        return OVERHEAD_BYTES + len(self.topic) + len(self.expression.encode())


@dataclass(frozen=True, slots=True)
class Merged:
    """Subscriptions after a heartbeat; `is_changed`: topics were added or removed."""

    table: dict[str, Subscription]
    is_changed: bool


def merge(old: Mapping[str, Subscription], new: Sequence[Subscription]) -> Merged:
    """Returns the new subscriptions; an old one replaces a new one that is not newer.

    Topics not in `new` are dropped. A newer expression of a topic is no change: it does not affect
    the assignment of queues to members.
    """
    table = {subscription.topic: subscription for subscription in new}
    for topic, subscription in table.items():
        known = old.get(topic)
        if known is not None and known.sub_version >= subscription.sub_version:
            table[topic] = known
    return Merged(table, table.keys() != old.keys())


def check_subscriptions(subscriptions: Sequence[Subscription], limits: ClientLimits) -> None:
    """Checks the subscriptions of one group. Raises ParameterIllegalError."""
    if len(subscriptions) > limits.subscriptions_per_group_max:
        accepted = f"{limits.subscriptions_per_group_max} or fewer"
        raise ParameterIllegalError("number of subscriptions", len(subscriptions), accepted)
    topics: set[str] = set()
    for subscription in subscriptions:
        _check(subscription, limits)
        if subscription.topic in topics:
            raise ParameterIllegalError("subscription", subscription.topic, "each topic once")
        topics.add(subscription.topic)


def check_topic(topic: str) -> None:
    """Raises ParameterIllegalError for an illegal topic name."""
    if len(topic) > TOPIC_BYTES_MAX or not TOPIC_PATTERN.fullmatch(topic):
        accepted = f"1 to {TOPIC_BYTES_MAX} of the characters a-z A-Z 0-9 _ - % |"
        raise ParameterIllegalError("topic", topic[: TOPIC_BYTES_MAX + 1], accepted)


def _check(subscription: Subscription, limits: ClientLimits) -> None:
    check_topic(subscription.topic)
    if subscription.expression_type not in {TAG, SQL92}:
        raise ParameterIllegalError(
            "expression_type", subscription.expression_type[:100], f"{TAG} or {SQL92}"
        )
    size = len(subscription.expression.encode())
    if size > limits.expression_bytes_max:
        accepted = f"{limits.expression_bytes_max} or fewer"
        raise ParameterIllegalError("bytes of an expression", size, accepted)
    tags = subscription.expression.replace("|", " ").strip()
    if subscription.expression_type == TAG and not tags:
        accepted = f"tags between '||', or {EVERYTHING!r}"
        raise ParameterIllegalError("expression", subscription.expression[:100], accepted)
    if not tags:
        raise ParameterIllegalError("expression", "", f"a condition of {SQL92}")
