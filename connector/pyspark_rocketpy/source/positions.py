"""Where a running query stands: its positions against what the broker has now.

Pure functions; no state. Rows K01, S5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from pyspark_rocketpy.errors import OffsetError, OptionError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.source.losses import Loss
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

    Where they have topics in common, the others may be left out by failOnDataLoss false.
    """
    strange = [topic for topic in sorted(logged) if not _is_read(subscription, topic)]
    has_common = len(strange) < len(logged)
    if not strange or (has_common and not fail_on_data_loss):
        return
    way_out = ", or set option failOnDataLoss to false to go on without it" if has_common else ""
    raise OffsetError(
        f"the checkpoint is of topic {strange[0]!r}, but the query reads "
        f"{_described(subscription)}; read {strange[0]!r} again, or start with a new "
        f"checkpointLocation{way_out}"
    )


def _is_read(subscription: Subscription, topic: str) -> bool:
    pattern = subscription.topic_pattern
    if pattern is None or topic == subscription.retry_topic:
        return topic in subscription.named
    return re.fullmatch(pattern, topic) is not None


def _described(subscription: Subscription) -> str:
    """What a query reads, in the words of its options."""
    if subscription.topic_pattern is not None:
        return f"topicPattern {subscription.topic_pattern!r}"
    names = [repr(topic) for topic in subscription.topics]
    return f"topic {names[0]}" if len(names) == 1 else f"topics {', '.join(names)}"


def latest_positions(bounds: Bounds) -> Positions:
    """The ends of all queues."""
    return {
        topic: {queue: there.max_offset for queue, there in queues.items()}
        for topic, queues in bounds.items()
    }


def vanished(
    begin: Positions, bounds: Bounds, seen: Bounds | None, remade: AbstractSet[str] = frozenset()
) -> list[Loss]:
    """What is lost with queues that are gone, or that were recreated, as all of `remade` topics.

    How far they went is what was seen of them last.
    """
    losses = []
    for topic, queues in begin.items():
        for queue, offset in queues.items():
            there = bounds.get(topic, {}).get(queue)
            if there is None or there.max_offset < offset or topic in remade:
                last = (seen or {}).get(topic, {}).get(queue)
                end = offset if last is None else max(offset, last.max_offset)
                what = _what(there, is_remade=topic in remade)
                losses.append(Loss(topic, queue, offset, end, what))
    return losses


TAKEN_BACK = (
    "were taken back: a power cut took messages from the broker that had been read, and what is "
    "stored there now has not been read"
)


def taken_back(
    reached: Positions, bounds: Bounds, remade: AbstractSet[str] = frozenset()
) -> list[Loss]:
    """What recoveries that the positions do not know of have cut below them.

    Not of `remade` topics, which have lost everything.
    """
    losses = []
    for topic, queues in sorted(reached.items()):
        for queue, offset in sorted(queues.items()):
            there = bounds.get(topic, {}).get(queue)
            cut = None if there is None or topic in remade else there.cut_offset
            if cut is not None and cut < offset:
                going_on = f"are gone, and the query goes on at {cut}"
                losses.append(Loss(topic, queue, cut, offset, TAKEN_BACK, going_on))
    return losses


def cut_back(reached: Positions, taken: list[Loss]) -> Positions:
    """The positions, but no further than what was taken back."""
    cut = {topic: dict(queues) for topic, queues in reached.items()}
    for loss in taken:
        cut[loss.topic][loss.queue] = loss.begin
    return cut


REMADE = "are gone: the topic was deleted and made again"


def _what(queue: QueueBounds | None, *, is_remade: bool) -> str:
    if is_remade:
        return REMADE
    if queue is None:
        return "are gone: the queue was removed"
    return (
        f"are gone: the queue ends at {queue.max_offset}, so it was recreated, or a power cut took "
        "its end"
    )


def entering(
    begin: Positions, bounds: Bounds, end: Positions, taken: Sequence[Loss] = ()
) -> Positions:
    """The queues of `end` that are new to the query, were recreated or cut, where they are read."""
    cut = {(loss.topic, loss.queue) for loss in taken}
    standing = reading_from(begin, bounds)
    new = {
        topic: {
            queue: standing[topic][queue]
            for queue in queues
            if (topic, queue) in cut or _enters(begin, topic, queue, bounds[topic][queue])
        }
        for topic, queues in end.items()
    }
    return {topic: queues for topic, queues in new.items() if queues}


def _enters(begin: Positions, topic: str, queue: BrokerQueue, there: QueueBounds) -> bool:
    offset = begin.get(topic, {}).get(queue)
    return offset is None or offset > there.max_offset


def reading_from(begin: Positions, bounds: Bounds) -> Positions:
    """Where the next messages of every queue are: not below its minimum, nor beyond its end."""
    return {
        topic: {
            queue: there.min_offset
            if _enters(begin, topic, queue, there)
            else max(begin[topic][queue], there.min_offset)
            for queue, there in queues.items()
        }
        for topic, queues in bounds.items()
    }


def pinned(pin: Positions, begin: Positions, standing: Positions, latest: Positions) -> Positions:
    """The ends of an AvailableNow run: those of its start, but never behind where it stands.

    A queue that came since waits for the next run; one that was recreated ends where it does now.
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


def below_minimum(
    begin: Positions, end: Positions, bounds: Bounds, remade: AbstractSet[str] = frozenset()
) -> list[Loss]:
    """What is lost of the messages [begin, end) because the queues now begin behind them.

    Of `remade` topics nothing is left.
    """
    losses = []
    for topic, queues in sorted(end.items()):
        for queue, offset_end in sorted(queues.items()):
            there = bounds.get(topic, {}).get(queue)
            offset = begin.get(topic, {}).get(queue)
            is_remade = topic in remade
            low = offset_end if there is None or is_remade else min(there.min_offset, offset_end)
            if offset is not None and offset < low:
                where = f"now begins at {there.min_offset}" if there else "was removed"
                what = REMADE if is_remade else f"are gone: the queue {where}"
                losses.append(Loss(topic, queue, offset, low, what))
    return losses


def without(losses: list[Loss], begin: Positions, end: Positions, bounds: Bounds) -> Positions:
    """`begin` for every queue of `end`, behind what is lost."""
    checked: Positions = {
        topic: {
            queue: begin.get(topic, {}).get(queue, _minimum(bounds, topic, queue, offset))
            for queue, offset in queues.items()
        }
        for topic, queues in end.items()
    }
    for loss in losses:
        checked[loss.topic][loss.queue] = loss.end
    return checked


def _minimum(bounds: Bounds, topic: str, queue: BrokerQueue, offset_end: int) -> int:
    """The start of a queue that no offset names; nothing is read of one that is gone."""
    there = bounds.get(topic, {}).get(queue)
    return offset_end if there is None else there.min_offset
