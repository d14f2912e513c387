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
    subscription: Subscription, logged: Positions, *, fail_on_data_loss: bool
) -> None:
    """Raises OffsetError for a checkpoint of other topics than the query is to read.

    If both have topics in common, failOnDataLoss false leaves out the other topics.
    """
    strange = sorted(logged.keys() - subscription.reads(logged))
    has_common = len(strange) < len(logged)
    if not strange or (has_common and not fail_on_data_loss):
        return
    way_out = ", or set option failOnDataLoss to false to go on without it" if has_common else ""
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


def pinned(pin: Positions, begin: Positions, standing: Positions, latest: Positions) -> Positions:
    """Returns the ends of an AvailableNow run: the pinned ones, never before `standing`.

    A queue that was added since waits for the next run. A recreated queue ends at its present end.
    """
    ends: Positions = {}
    for topic, queues in latest.items():
        for queue, offset in queues.items():
            place = standing[topic][queue]
            known = queue in begin.get(topic, {}) or queue in pin.get(topic, {})
            if known:
                end = min(max(pin.get(topic, {}).get(queue, place), place), offset)
                ends.setdefault(topic, {})[queue] = end
    return ends
