"""Reconciliation of a query's positions with the broker's bounds.

    place   broker                                reading goes on         lost
    none    queue is listed                       at its start
    yes     queue is listed                       at the place
    yes     listed, cut below the place           at the cut              cut .. place
    yes     listed, ends before the place         at its start            place .. last seen end
    yes     topic was recreated                   at its start            place .. last seen end
    yes     topic exists, queue is not listed     later, at the place
    yes     topic does not exist                  later, if it returns    place .. last seen end

A place is the query's position in a queue. A queue that is not listed is still stored. Its unread
messages are out of reach until the topic has its queues again. Topics that the query does not read
lose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OUT_OF_REACH
from pyspark_rocketpy.offsets import (
    Bounds,
    BrokerQueue,
    Epochs,
    Positions,
    QueueBounds,
    epochs_in,
    joined,
    recreated_topics,
)
from pyspark_rocketpy.source.plan.losses import Loss

# Deleted topics that keep their places; each takes some 100 bytes of an offset.
KEPT_TOPICS_MAX = 10_000
TAKEN_BACK = (
    "were taken back: a power cut took messages from the broker that had been read, and what is "
    "stored there now has not been read"
)
RECREATED = "are gone: the topic was deleted and made again"
DELETED = "are gone: the topic was deleted"
HIDDEN = f"are {OUT_OF_REACH}"
READ_LATER = "are read when the topic has its queues again"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Places of a query: in listed queues, and in other queues; and epochs of their topics."""

    listed: Positions
    kept: Positions = field(default_factory=dict)
    epochs: Epochs = field(default_factory=dict)

    @property
    def places(self) -> Positions:
        """All places."""
        return joined(self.listed, self.kept)

    def unlisted(self, listed: Bounds, topics: AbstractSet[str]) -> Positions:
        """Returns the places of these topics in queues that are not listed."""
        found = {
            topic: _without(queues, listed.get(topic, {}))
            for topic, queues in self.places.items()
            if topic in topics
        }
        return {topic: queues for topic, queues in found.items() if queues}


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's answer: bounds of listed queues, and of requested hidden ones.

    `topics` exist, perhaps without queues. Of the topics with places, the query reads the `read`
    ones. `seen` are bounds of an earlier answer.
    """

    listed: Bounds
    hidden: Bounds
    topics: AbstractSet[str]
    read: AbstractSet[str]
    seen: Bounds | None = None

    def hidden_queue(self, topic: str, queue: BrokerQueue, epoch: int) -> QueueBounds | None:
        """Returns a hidden queue of the topic with this epoch; None if it is unknown."""
        there = self.hidden.get(topic, {}).get(queue)
        is_other = there is not None and epoch and there.topic_epoch not in {0, epoch}
        return None if is_other else there

    def gone(self, topic: str, queue: BrokerQueue, place: int, what: str) -> Loss:
        """Returns the loss of all messages from a place to the last seen end."""
        last = (self.seen or {}).get(topic, {}).get(queue)
        end = place if last is None else max(place, last.max_offset)
        return Loss(topic, queue, place, end, what)


@dataclass(slots=True)
class Standing:
    """Positions of a query: `begin` and `end` of each listed queue, `kept` places elsewhere.

    - `reached`: the places of the group's progress.
    - `new`: the places of `begin` that do not follow from the checkpoint.
    - `lost`: lost messages, which change the checkpoint.
    - `hidden`: messages out of reach, which do not change it.
    """

    begin: Positions = field(default_factory=dict)
    end: Positions = field(default_factory=dict)
    reached: Positions = field(default_factory=dict)
    new: Positions = field(default_factory=dict)
    kept: Positions = field(default_factory=dict)
    epochs: Epochs = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)
    hidden: list[Loss] = field(default_factory=list)
    is_cut: bool = False

    def new_in(self, end: Positions) -> Positions:
        """Returns the new starts of the queues that a batch with this end reads."""
        found = {
            topic: {queue: queues[queue] for queue in queues if queue in end.get(topic, {})}
            for topic, queues in self.new.items()
        }
        return {topic: queues for topic, queues in found.items() if queues}


def reconcile(checkpoint: Checkpoint, answer: Answer) -> Standing:
    """Returns the query's standing, by the module's table."""
    recreated = recreated_topics(checkpoint.epochs, {**answer.hidden, **answer.listed})
    epochs = {**checkpoint.epochs, **epochs_in(answer.hidden), **epochs_in(answer.listed)}
    standing = Standing(epochs=epochs)
    places = checkpoint.places
    for topic in answer.listed:
        _stand(standing, answer, topic, {} if topic in recreated else places.get(topic, {}))
    for topic, its in places.items():
        is_lost = topic in checkpoint.listed and topic in answer.read
        if topic in recreated:
            what = RECREATED
        elif topic in answer.topics or topic in answer.hidden:
            _keep_hidden(standing, answer, topic, _without(its, answer.listed.get(topic, {})))
            continue
        else:
            what = DELETED
            if epochs.get(topic) or topic not in answer.read:
                standing.kept[topic] = its
        if is_lost:
            standing.lost += [answer.gone(topic, queue, its[queue], what) for queue in its]
    _forget_oldest(standing.kept, answer.topics)
    return standing


def _forget_oldest(kept: Positions, topics: AbstractSet[str]) -> None:
    """Limits the deleted topics to KEPT_TOPICS_MAX."""
    away = [topic for topic in kept if topic not in topics]
    for topic in away[: max(0, len(away) - KEPT_TOPICS_MAX)]:
        del kept[topic]


def _without(
    queues: Mapping[BrokerQueue, int], others: Mapping[BrokerQueue, object]
) -> dict[BrokerQueue, int]:
    return {queue: place for queue, place in queues.items() if queue not in others}


def _stand(
    standing: Standing, answer: Answer, topic: str, places: Mapping[BrokerQueue, int]
) -> None:
    """Adds a topic's listed queues, in which the query has these places."""
    queues = answer.listed[topic]
    begins, reached, new = dict[BrokerQueue, int](), dict[BrokerQueue, int](), {}
    for queue, there in queues.items():
        place = places.get(queue)
        left = None if place is None else _left(standing, answer, topic, queue, place, there)
        begins[queue] = begin = max(left or 0, there.min_offset)
        if left is not None:
            reached[queue] = left
        if left is None or left != place:
            new[queue] = begin
    standing.begin[topic] = begins
    standing.end[topic] = {queue: there.max_offset for queue, there in queues.items()}
    if reached:
        standing.reached[topic] = reached
    if new:
        standing.new[topic] = new


def _keep_hidden(
    standing: Standing, answer: Answer, topic: str, places: Mapping[BrokerQueue, int]
) -> None:
    kept = {}
    for queue, place in places.items():
        there = answer.hidden_queue(topic, queue, standing.epochs.get(topic, 0))
        left = place
        if there is not None:
            found = _left(standing, answer, topic, queue, place, there)
            if found is None:
                continue
            left = found
            # A queue that has returned since is read next time.
            if there.is_hidden and there.max_offset > left and topic in answer.read:
                loss = Loss(topic, queue, left, there.max_offset, HIDDEN, READ_LATER)
                standing.hidden.append(loss)
        kept[queue] = left
    if kept:
        standing.kept[topic] = kept


def _left(
    standing: Standing,
    answer: Answer,
    topic: str,
    queue: BrokerQueue,
    place: int,
    there: QueueBounds,
) -> int | None:
    """Returns the remaining place in a queue; None if the queue was recreated."""
    cut = there.cut_offset
    if cut is not None and cut < place:
        standing.is_cut = True
        lost, left = _taken(topic, queue, cut, place), cut
    elif there.max_offset < place and not there.is_behind:
        lost, left = answer.gone(topic, queue, place, _recreated(there)), None
    else:
        return place
    if topic in answer.read:
        standing.lost.append(lost)
    return left


def _taken(topic: str, queue: BrokerQueue, cut: int, place: int) -> Loss:
    going_on = f"are gone, and the query goes on at {cut}"
    return Loss(topic, queue, cut, place, TAKEN_BACK, going_on)


def _recreated(queue: QueueBounds) -> str:
    return (
        f"are gone: the queue ends at {queue.max_offset}, so it was recreated, or a power cut took "
        "its end"
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """The readable part of a planned micro-batch, and its losses.

    `hidden` messages are in `begin` and `end`, and are stored in queues that are not listed.
    """

    begin: Positions
    end: Positions
    lost: Sequence[Loss]
    hidden: Sequence[Loss]


def reconcile_batch(
    begin: Positions, end: Positions, epochs: Epochs, listed: Bounds, topics: AbstractSet[str]
) -> Batch:
    """Returns the remaining messages from `begin` to `end`.

    A queue that `begin` does not name is read from its own start. `topics` exist, perhaps without
    queues. `listed` has the planned ones of their hidden queues, too.
    """
    recreated = recreated_topics(epochs, listed)
    topics = topics - recreated
    narrow_begin: Positions = {topic: {} for topic in end}
    narrow_end: Positions = {topic: {} for topic in end}
    taken, lost, hidden = list[Loss](), list[Loss](), list[Loss]()
    for topic, queues in sorted(end.items()):
        unknown = QueueBounds(0, 0, -1, is_hidden=True) if topic in topics else None
        its = {} if topic in recreated else listed.get(topic, {})
        for queue, planned in sorted(queues.items()):
            there = its.get(queue, unknown)
            cut = None if there is None else there.cut_offset
            stop = planned if cut is None else min(planned, cut)
            if stop < planned:
                taken.append(_taken(topic, queue, stop, planned))
            low = stop if there is None else min(there.min_offset, stop)
            start = begin.get(topic, {}).get(queue)
            if start is not None and start < low:
                what = RECREATED if topic in recreated else _unread(there)
                lost.append(Loss(topic, queue, start, low, what))
            first = low if start is None else max(start, low)
            if there is not None and there.is_hidden and first < stop:
                hidden.append(Loss(topic, queue, first, stop, HIDDEN))
            narrow_begin[topic][queue], narrow_end[topic][queue] = first, stop
    return Batch(narrow_begin, narrow_end, [*taken, *lost], hidden)


def _unread(there: QueueBounds | None) -> str:
    return DELETED if there is None else f"are gone: the queue now begins at {there.min_offset}"
