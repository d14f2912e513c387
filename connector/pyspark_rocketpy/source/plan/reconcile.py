"""Reconciliation of a query's positions with the broker's bounds.

A query between two batches has one position in each queue:

    position  broker                            the query continues     lost
    none      queue is listed                   at its start
    yes       queue is listed                   at the position
    yes       queue is cut below the position   at the cut              cut .. position
    yes       queue ends before the position    at its start            position .. last seen end
    yes       topic was recreated               at its start            position .. last seen end
    yes       topic exists, queue not listed    later, at the position
    yes       topic does not exist              later, if it returns    position .. last seen end

A planned batch has a begin and an end in each queue:

    begin     broker                            the batch reads         lost
    none      topic exists                      start of queue .. end
    yes       topic exists                      begin .. end
    yes       queue starts after `begin`        start of queue .. end   begin .. start of queue
    any       queue is cut below the end        begin .. cut            cut .. end
    any       topic was recreated or deleted    nothing                 begin .. end

A queue that is not listed is still stored. Its unread messages are out of reach until the topic has
its queues again. Topics that the query does not read lose nothing. A topic of a cluster without
listed queues loses nothing either: it is absent while its brokers are away.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyspark_rocketpy.errors import OUT_OF_REACH
from pyspark_rocketpy.offsets import (
    ANY,
    Bounds,
    BrokerQueue,
    Epochs,
    Offset,
    Origin,
    Positions,
    QueueBounds,
    begin_of,
    epochs_in,
    joined,
    kept_of,
    positions_of,
    recreated_topics,
)
from pyspark_rocketpy.source.plan.losses import Loss

# Deleted topics that keep their positions; each takes some 100 bytes of an offset.
KEPT_TOPICS_MAX = 10_000
TAKEN_BACK = (
    "were taken back: in a power cut the broker lost messages that the query had read; messages "
    "that are stored there now have not been read"
)
RECREATED = "are gone: the topic was deleted and recreated"
DELETED = "are gone: the topic was deleted"
HIDDEN = f"are {OUT_OF_REACH}"
READ_LATER = "read when the topic has its queues again"
# A queue of an existing topic that the broker does not describe.
UNKNOWN = QueueBounds(0, 0, -1, is_lagging=True, is_hidden=True)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Positions of a query in `listed` queues and `kept` ones in other queues, of one origin.

    `begin` is the start of a planned batch, which ends at the positions; None before the plan.
    """

    listed: Positions
    kept: Positions = field(default_factory=dict)
    origin: Origin = ANY
    begin: Positions | None = None

    @classmethod
    def of(cls, start: Offset) -> Checkpoint:
        """Returns the checkpoint of the next batch's start. Raises OffsetError."""
        return cls(positions_of(start), kept_of(start), Origin.of(start))

    @classmethod
    def of_batch(cls, start: Offset, end: Offset) -> Checkpoint:
        """Returns the checkpoint of a planned batch. Raises OffsetError."""
        return cls(positions_of(end), {}, Origin.of(end), begin_of(start, end))

    @property
    def positions(self) -> Positions:
        """All positions."""
        return joined(self.listed, self.kept)

    def unlisted(self, bounds: Bounds, topics: Container[str]) -> Positions:
        """Returns the positions of these topics in queues without bounds."""
        found = {
            topic: {
                queue: position
                for queue, position in queues.items()
                if queue not in bounds.get(topic, {})
            }
            for topic, queues in self.positions.items()
            if topic in topics
        }
        return {topic: queues for topic, queues in found.items() if queues}


@dataclass(slots=True)
class Reconciled:
    """The readable messages, from `begin` to `end` of each listed or planned queue, and losses.

    - `positions`: the checkpoint's remaining positions in listed queues; the group's progress.
    - `new`: the starts of `begin` that do not follow from the checkpoint.
    - `kept`: the positions in other queues.
    - `lost`: lost messages, which change the checkpoint.
    - `hidden`: messages out of reach, which do not change it.
    """

    begin: Positions = field(default_factory=dict)
    end: Positions = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
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


def reconcile(
    checkpoint: Checkpoint, bounds: Bounds, read: AbstractSet[str], seen: Bounds | None = None
) -> Reconciled:
    """Returns the query's positions and losses, by the module's tables.

    `bounds` has the existing topics with their listed queues, and hidden queues with positions. The
    query reads the topics `read`. `seen` are bounds of an earlier answer.
    """
    epochs = {**checkpoint.origin.epochs, **epochs_in(bounds)}
    recreated = recreated_topics(checkpoint.origin.epochs, bounds)
    case = _Case(checkpoint, bounds, read, seen or {}, Reconciled(epochs=epochs))
    fates = dict.fromkeys(checkpoint.positions.keys() - bounds.keys(), DELETED)
    fates |= dict.fromkeys(recreated, RECREATED)
    if checkpoint.begin is not None:
        for topic, ends in sorted(checkpoint.listed.items()):
            case.add_planned(topic, ends, checkpoint.begin.get(topic, {}), fates.get(topic))
        return case.result
    positions = checkpoint.positions
    for topic in {**positions, **bounds}:
        case.add_topic(topic, positions.get(topic, {}), fates.get(topic))
    _forget_oldest(case.result.kept, bounds)
    return case.result


def _forget_oldest(kept: Positions, topics: Container[str]) -> None:
    """Limits the deleted topics to KEPT_TOPICS_MAX."""
    away = [topic for topic in kept if topic not in topics]
    for topic in away[: max(0, len(away) - KEPT_TOPICS_MAX)]:
        del kept[topic]


@dataclass(frozen=True, slots=True)
class _Case:
    """The arguments of `reconcile`, and its result, to which the methods add topics."""

    checkpoint: Checkpoint
    bounds: Bounds
    read: AbstractSet[str]
    seen: Bounds
    result: Reconciled

    def add_topic(self, topic: str, positions: Mapping[BrokerQueue, int], fate: str | None) -> None:
        """Adds a topic with the query's positions; `fate` is set if the topic of these is gone."""
        result, is_read = self.result, topic in self.read
        if fate is not None:
            # A cluster's topic is absent with its brokers, whose listed queues have bounds.
            is_away = fate == DELETED and any(queue.broker_name for queue in positions)
            is_lost = topic in self.checkpoint.listed and not is_away
            for queue in sorted(positions if is_lost else ()):
                self._lose_rest(topic, queue, positions[queue], fate)
            if fate == DELETED and (result.epochs.get(topic) or not is_read or is_away):
                result.kept[topic] = dict(positions)
            positions = {}
        if topic not in self.bounds:
            return
        if is_read:
            result.begin[topic], result.end[topic] = {}, {}
        for queue in sorted({*self.bounds[topic], *positions}):
            there, position = self._bounds_of(topic, queue), positions.get(queue)
            left = None if position is None else self._left(topic, queue, position, there)
            if there.is_hidden or not is_read:
                self._keep(topic, queue, left, there)
                continue
            begin = max(left or 0, there.min_offset)
            # A slave may lack messages that the query has read.
            end = max(begin, there.max_offset)
            result.begin[topic][queue], result.end[topic][queue] = begin, end
            if left is not None:
                result.positions.setdefault(topic, {})[queue] = left
            if left is None or left != position:
                result.new.setdefault(topic, {})[queue] = begin

    def add_planned(
        self,
        topic: str,
        ends: Mapping[BrokerQueue, int],
        begins: Mapping[BrokerQueue, int],
        fate: str | None,
    ) -> None:
        """Adds a topic of a planned batch; `fate` is set if this topic is gone."""
        result = self.result
        result.begin[topic], result.end[topic] = {}, {}
        for queue, planned in sorted(ends.items()):
            there = self._bounds_of(topic, queue)
            end = planned if fate else self._uncut(topic, queue, planned, there)
            low = end if fate else min(there.min_offset, end)
            begin = begins.get(queue, low)
            if begin < low:
                what = fate or f"are gone: the queue now starts at {there.min_offset}"
                self._lose(Loss(topic, queue, begin, low, what))
                begin = low
            if there.is_hidden and begin < end:
                result.hidden.append(Loss(topic, queue, begin, end, HIDDEN))
            result.begin[topic][queue], result.end[topic][queue] = begin, end

    def _bounds_of(self, topic: str, queue: BrokerQueue) -> QueueBounds:
        """Returns the bounds of a queue; UNKNOWN if they are of a former topic of this name."""
        there = self.bounds.get(topic, {}).get(queue, UNKNOWN)
        epoch = self.result.epochs.get(topic) or there.topic_epoch
        return there if there.topic_epoch in {0, epoch} else UNKNOWN

    def _left(
        self, topic: str, queue: BrokerQueue, position: int, there: QueueBounds
    ) -> int | None:
        """Returns the remaining position in a queue; None if the queue was recreated."""
        left = self._uncut(topic, queue, position, there)
        if left < position or there.max_offset >= position or there.is_lagging:
            return left
        what = (
            f"are gone: the queue ends at {there.max_offset}, so it was recreated, or a power cut "
            "removed its end"
        )
        self._lose_rest(topic, queue, position, what)
        return None

    def _uncut(self, topic: str, queue: BrokerQueue, position: int, there: QueueBounds) -> int:
        """Returns the position, or a recovery's cut below it; the messages between are lost."""
        cut = there.cut_offset
        if cut is None or cut >= position:
            return position
        self.result.is_cut = True
        going_on = f"gone, and the query continues at {cut}"
        self._lose(Loss(topic, queue, cut, position, TAKEN_BACK, going_on))
        return cut

    def _keep(self, topic: str, queue: BrokerQueue, left: int | None, there: QueueBounds) -> None:
        """Keeps the position in a queue that is not listed; adds its messages out of reach."""
        if left is None:
            return
        self.result.kept.setdefault(topic, {})[queue] = left
        if there.is_hidden and there.max_offset > left and topic in self.read:
            loss = Loss(topic, queue, left, there.max_offset, HIDDEN, READ_LATER)
            self.result.hidden.append(loss)

    def _lose_rest(self, topic: str, queue: BrokerQueue, position: int, what: str) -> None:
        """Adds the loss of all messages from a position to the last seen end."""
        last = self.seen.get(topic, {}).get(queue)
        end = position if last is None else max(position, last.max_offset)
        self._lose(Loss(topic, queue, position, end, what))

    def _lose(self, loss: Loss) -> None:
        if loss.topic in self.read:
            self.result.lost.append(loss)
