"""Positions of a running query against the broker's bounds."""

from __future__ import annotations

from pyspark_rocketpy.errors import OffsetError, OptionError
from pyspark_rocketpy.offsets import Bounds, Positions
from pyspark_rocketpy.transport.values import Subscription


def require_topics(subscription: Subscription, bounds: Bounds) -> None:
    """Raises OptionError for a topic that the broker does not have."""
    missing = [topic for topic in subscription.topics if topic not in bounds]
    if missing:
        raise OptionError(
            f"topic {missing[0]!r} does not exist; create it first, or correct option topic"
        )


def require_same_topics(
    subscription: Subscription, positions: Positions, *, fail_on_data_loss: bool
) -> None:
    """Raises OffsetError for a checkpoint of other topics than the query is to read.

    If both have topics in common, failOnDataLoss false leaves out the other topics.
    """
    strange = sorted(positions.keys() - subscription.reads(positions))
    has_common = len(strange) < len(positions)
    if not strange or (has_common and not fail_on_data_loss):
        return
    way_out = ", or set option failOnDataLoss to false to continue without it" if has_common else ""
    raise OffsetError(
        f"the checkpoint is of topic {strange[0]!r}, but the query reads "
        f"{_described(subscription)}; read {strange[0]!r} again, or start with a new "
        f"checkpointLocation{way_out}"
    )


def _described(subscription: Subscription) -> str:
    """Returns the topics of a query, in the words of its options."""
    if subscription.topic_pattern is not None:
        return f"topicPattern {subscription.topic_pattern!r}"
    names = [repr(topic) for topic in subscription.topics]
    return f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names)}"


def latest_positions(bounds: Bounds) -> Positions:
    """Returns the ends of all queues."""
    return {
        topic: {queue: there.max_offset for queue, there in queues.items()}
        for topic, queues in bounds.items()
    }


def pinned_end(pin: Positions, positions: Positions, begin: Positions, end: Positions) -> Positions:
    """Returns the ends of an AvailableNow run: the pinned ones, never before `begin`.

    A queue without a position was added since, and waits for the next run. A recreated queue ends
    at its present end.
    """
    pinned: Positions = {}
    for topic, queues in end.items():
        pins = pin.get(topic, {})
        known = pins.keys() | positions.get(topic, {}).keys()
        for queue in queues.keys() & known:
            at_least = max(pins.get(queue, 0), begin[topic][queue])
            pinned.setdefault(topic, {})[queue] = min(at_least, queues[queue])
    return pinned
