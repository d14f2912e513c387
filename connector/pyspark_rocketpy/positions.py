"""Where queries begin and end: option values and checkpoints against what the broker has.

Pure functions; no state. Rows K01, K05.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketpy.client import Bounds, QueueBounds
from pyspark_rocketpy.errors import DataLossError, OffsetError, OptionError, loss_advice
from pyspark_rocketpy.offsets import EARLIEST, LATEST, Positions, parse_offsets_json

EARLIEST_NAME, LATEST_NAME, COMMITTED_NAME = "earliest", "latest", "committed"
STARTING_NAMES = (EARLIEST_NAME, LATEST_NAME, COMMITTED_NAME)


def check_starting(text: str, option: str = "startingOffsets") -> None:
    """Check the form of startingOffsets without a broker. Raises OptionError, OffsetError."""
    if text.lower() not in STARTING_NAMES:
        _check_json(option, text, "earliest, latest, committed")


def check_ending(text: str) -> None:
    """Check the form of endingOffsets without a broker. Raises OptionError, OffsetError."""
    if text.lower() != LATEST_NAME:
        positions = _check_json("endingOffsets", text, LATEST_NAME)
        if any(EARLIEST in queues.values() for queues in positions.values()):
            raise OffsetError("option endingOffsets: -2 (earliest) is no end; use -1 for latest")


def _check_json(option: str, text: str, names: str) -> Positions:
    if not text.startswith("{"):
        raise OptionError(f"option {option} is {text!r}; accepted: {names}, or JSON offsets")
    return parse_offsets_json(option, text)


def require_topics(topics: Sequence[str], bounds: Bounds) -> None:
    """Raises OptionError for a topic that the broker does not have."""
    missing = [topic for topic in topics if topic not in bounds]
    if missing:
        raise OptionError(
            f"topic {missing[0]!r} does not exist; create it first, or mend option topic"
        )


def resolve(option: str, text: str, bounds: Bounds) -> Positions:
    """The positions that an option value names. Raises OffsetError, OptionError."""
    name = text.lower()
    if name in STARTING_NAMES:
        return {
            topic: {queue_id: _named(name, queue) for queue_id, queue in queues.items()}
            for topic, queues in bounds.items()
        }
    given = parse_offsets_json(option, text)
    _check_complete(option, given, bounds)
    return {
        topic: {
            queue_id: _given(option, topic, queue_id, offset, bounds[topic][queue_id])
            for queue_id, offset in queues.items()
        }
        for topic, queues in given.items()
    }


def _named(name: str, queue: QueueBounds) -> int:
    if name == EARLIEST_NAME:
        return queue.min_offset
    if name == LATEST_NAME:
        return queue.max_offset
    # A queue without progress is read from its begin, so that nothing is missed.
    return queue.committed_offset if queue.committed_offset >= 0 else queue.min_offset


def _check_complete(option: str, given: Positions, bounds: Bounds) -> None:
    """Every queue of every topic must be named, and no other, as Spark's Kafka source asks."""
    wanted = {(topic, queue_id) for topic, queues in bounds.items() for queue_id in queues}
    named = {(topic, queue_id) for topic, queues in given.items() for queue_id in queues}
    for problem, keys in (("names no offset for", wanted - named), ("names", named - wanted)):
        if keys:
            topic, queue_id = min(keys)
            hint = "name every queue" if problem != "names" else "there is no such queue"
            raise OffsetError(
                f"option {option} {problem} queue {queue_id} of topic {topic!r}; {hint}"
            )


def _given(option: str, topic: str, queue_id: int, offset: int, queue: QueueBounds) -> int:
    if offset == LATEST:
        return queue.max_offset
    if offset == EARLIEST:
        return queue.min_offset
    if offset > queue.max_offset:
        raise OffsetError(
            f"option {option}: offset {offset} of queue {queue_id} of topic {topic!r} is beyond "
            f"its end, {queue.max_offset}; use -1 for the end"
        )
    return offset


def latest_positions(start: Positions, bounds: Bounds, *, fail_on_data_loss: bool) -> Positions:
    """The ends of all queues, never behind `start` unless messages are lost.

    Raises DataLossError for a topic or queue that is gone, or that has begun anew.
    """
    for topic, queues in start.items():
        for queue_id, offset in queues.items():
            queue = bounds.get(topic, {}).get(queue_id)
            if fail_on_data_loss and (queue is None or queue.max_offset < offset):
                what = "is gone" if queue is None else f"now ends at {queue.max_offset}"
                raise DataLossError(
                    f"queue {queue_id} of topic {topic!r}, read up to offset {offset}, {what}: it "
                    f"was removed or made anew; {loss_advice()}"
                )
    latest = {
        topic: {queue_id: queue.max_offset for queue_id, queue in queues.items()}
        for topic, queues in bounds.items()
    }
    return {**{topic: dict(queues) for topic, queues in start.items()}, **latest}


def pinned(pin: Positions, begin: Positions, latest: Positions) -> Positions:
    """The ends of an AvailableNow run: those of its start, but never behind `begin`.

    A queue that has begun anew since is read as far as it goes now.
    """
    ends: Positions = {}
    for topic, queues in pin.items():
        for queue_id, offset in queues.items():
            start = begin.get(topic, {}).get(queue_id, 0)
            last = latest.get(topic, {}).get(queue_id, offset)
            end = last if last < start else max(offset, start)
            ends.setdefault(topic, {})[queue_id] = end
    return ends


def completed(begin: Positions, end: Positions, bounds: Bounds) -> Positions:
    """`begin` for every queue of `end`: new queues at their minimum, none beyond its end."""
    return {
        topic: {
            queue_id: min(
                begin.get(topic, {}).get(queue_id, _minimum(bounds, topic, queue_id)), offset
            )
            for queue_id, offset in queues.items()
        }
        for topic, queues in end.items()
    }


def _minimum(bounds: Bounds, topic: str, queue_id: int) -> int:
    queue = bounds.get(topic, {}).get(queue_id)
    return 0 if queue is None else queue.min_offset


def checked_begin(
    begin: Positions, end: Positions, bounds: Bounds, *, fail_on_data_loss: bool
) -> Positions:
    """Where to begin reading: new queues at their minimum, lost messages refused or passed over.

    Raises DataLossError.
    """
    checked: Positions = {}
    for topic, queues in end.items():
        for queue_id, offset_end in queues.items():
            queue = bounds.get(topic, {}).get(queue_id)
            low = queue.min_offset if queue is not None else offset_end
            offset = begin.get(topic, {}).get(queue_id, low)
            if offset > offset_end:
                offset = low  # The queue was made anew, and `latest_positions` let it pass.
            if offset < low and offset < offset_end:
                if fail_on_data_loss:
                    raise DataLossError(
                        f"offsets [{offset}, {min(low, offset_end)}) of queue {queue_id} of topic "
                        f"{topic!r} are gone; {loss_advice()}"
                    )
                offset = min(low, offset_end)
            checked.setdefault(topic, {})[queue_id] = offset
    return checked
