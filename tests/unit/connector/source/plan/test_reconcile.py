"""A query's positions against the broker's queues, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from pyspark_rocketpy.offsets import (
    Bounds,
    BrokerQueue,
    Epochs,
    Origin,
    Positions,
    QueueBounds,
)
from pyspark_rocketpy.source.plan import losses, reconcile
from pyspark_rocketpy.source.plan.reconcile import KEPT_TOPICS_MAX, Checkpoint, Reconciled
from tests.support.queues import Q0, Q1, Q2

EPOCHS = {"T": 7}
A0, A1, B0 = BrokerQueue("a", 0), BrokerQueue("a", 1), BrokerQueue("b", 0)


def queue(
    low: int,
    high: int,
    epoch: int = 7,
    cut: int | None = None,
    *,
    is_lagging: bool = False,
    is_hidden: bool = False,
) -> QueueBounds:
    return QueueBounds(low, high, -1, epoch, cut, is_lagging=is_lagging, is_hidden=is_hidden)


def hidden(low: int, high: int, epoch: int = 7, cut: int | None = None) -> QueueBounds:
    return queue(low, high, epoch, cut, is_hidden=True)


def checkpoint(
    listed: Positions,
    kept: Positions | None = None,
    *,
    begin: Positions | None = None,
    epochs: Epochs = EPOCHS,
) -> Checkpoint:
    return Checkpoint(listed, kept or {}, Origin(epochs=epochs), begin)


def reconciled(
    positions: Checkpoint,
    bounds: Bounds,
    read: frozenset[str] = frozenset({"T", "U"}),
    seen: Bounds | None = None,
) -> Reconciled:
    return reconcile.reconcile(positions, bounds, read, seen)


def texts(lost: list[losses.Loss]) -> list[str]:
    return [str(loss) for loss in lost]


def start_with(found: list[losses.Loss], words: tuple[str, ...]) -> bool:
    """True if these are the losses, each with its words at the start."""
    return len(found) == len(words) and all(map(str.startswith, texts(found), words))


# --- A query between two batches ---


@dataclass(frozen=True, slots=True)
class Next:
    """Results for a query that continues in topic T, with the words of its losses."""

    begin: Mapping[BrokerQueue, int] = field(default_factory=dict)
    new: Mapping[BrokerQueue, int] = field(default_factory=dict)
    kept: Mapping[BrokerQueue, int] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


GONE = "offsets from 15 on of queue 0 of topic 'T' are gone: "
TAKEN = "of queue 0 of topic 'T' were taken back: in a power cut the broker lost"
GONE_1 = "offsets from 15 on of queue 1 of topic 'T' are gone: "
DELETED, RECREATED = "the topic was deleted", "the topic was deleted and recreated"
REST = "offsets [15, 18) of queue 1 of topic 'T' are out of reach: they"

QUEUES = {
    "new queue": (None, queue(10, 20), Next({Q0: 10}, new={Q0: 10})),
    "unread messages": (15, queue(10, 20), Next({Q0: 15})),
    "nothing new": (20, queue(10, 20), Next({Q0: 20})),
    # The loss is reported when the batch is planned.
    "start removed": (15, queue(18, 20), Next({Q0: 18})),
    "shorter": (15, queue(2, 9), Next({Q0: 2}, new={Q0: 2}, lost=(GONE + "the queue ends at 9",))),
    "answer of a slave": (15, queue(2, 9, is_lagging=True), Next({Q0: 15})),
    "cut": (
        15,
        queue(2, 20, cut=5),
        Next({Q0: 5}, new={Q0: 5}, lost=("offsets [5, 15) " + TAKEN,)),
    ),
    "cut by one": (
        15,
        queue(2, 20, cut=14),
        Next({Q0: 14}, new={Q0: 14}, lost=("offsets [14, 15) " + TAKEN,)),
    ),
    "cut at the position": (15, queue(2, 20, cut=15), Next({Q0: 15})),
    "cut after the position": (15, queue(2, 20, cut=16), Next({Q0: 15})),
    "cut, and its start removed": (
        15,
        queue(8, 20, cut=5),
        Next({Q0: 8}, new={Q0: 8}, lost=("offsets [5, 15) " + TAKEN,)),
    ),
    "cut, and still shorter": (
        15,
        queue(2, 9, cut=5),
        Next({Q0: 5}, new={Q0: 5}, lost=("offsets [5, 15) " + TAKEN,)),
    ),
    "topic recreated": (
        15,
        queue(2, 20, epoch=8),
        Next({Q0: 2}, new={Q0: 2}, lost=(GONE + RECREATED,)),
    ),
    "topic without an epoch": (15, queue(2, 20, epoch=0), Next({Q0: 15})),
}


@pytest.mark.parametrize(("position", "there", "result"), QUEUES.values(), ids=QUEUES)
def test_s5_a_listed_queue_is_read_from_its_position_or_its_loss_is_named(
    position: int | None, there: QueueBounds, result: Next
) -> None:
    listed: Positions = {"T": {} if position is None else {Q0: position}}
    found = reconciled(checkpoint(listed), {"T": {Q0: there}})
    assert found.begin == {"T": result.begin}
    # A slave may lack messages that the query has read.
    assert found.end == {"T": {Q0: max(there.max_offset, found.begin["T"][Q0])}}
    assert found.new == ({"T": result.new} if result.new else {})
    assert (found.kept, found.hidden) == ({}, [])
    assert start_with(found.lost, result.lost)
    assert found.is_cut == (there.cut_offset is not None and bool(result.lost))
    # The group's progress leaves out queues that start again.
    is_left = position is not None and (not result.lost or found.is_cut)
    left = min(position or 0, there.cut_offset or 20)
    assert found.positions == ({"T": {Q0: left}} if is_left else {})


UNLISTED = {
    "no answer": (None, Next(kept={Q1: 15})),
    "read to its end": (hidden(2, 15), Next(kept={Q1: 15})),
    "empty": (hidden(15, 15), Next(kept={Q1: 15})),
    "unread messages": (hidden(2, 18), Next(kept={Q1: 15}, hidden=(REST,))),
    "start removed": (hidden(17, 18), Next(kept={Q1: 15}, hidden=(REST,))),
    "shorter": (hidden(2, 9), Next(lost=(GONE_1 + "the queue ends at 9",))),
    "answer of a slave": (replace(hidden(2, 9), is_lagging=True), Next(kept={Q1: 15})),
    "cut": (
        hidden(2, 5, cut=5),
        Next(kept={Q1: 5}, lost=("offsets [5, 15) of queue 1 of topic 'T' were taken back",)),
    ),
    # The topic was recreated between the two queries.
    "of another topic": (hidden(0, 3, epoch=8), Next(kept={Q1: 15})),
    "back": (queue(0, 15), Next({Q1: 15})),
    "back with messages": (queue(0, 30), Next({Q1: 15})),
    "back without its start": (queue(20, 30), Next({Q1: 20})),
    "back and of another topic": (queue(0, 30, epoch=8), Next(kept={Q1: 15})),
}


@pytest.mark.parametrize(("there", "result"), UNLISTED.values(), ids=UNLISTED)
@pytest.mark.parametrize("was_listed", [True, False])
def test_s5_a_hidden_queue_keeps_its_position(
    was_listed: bool, there: QueueBounds | None, result: Next
) -> None:
    queues: Positions = {"T": {Q1: 15}}
    start = checkpoint({"T": {Q0: 3, Q1: 15}})
    if not was_listed:
        start = checkpoint({"T": {Q0: 3}}, queues)
    listed: Bounds = {"T": {Q0: queue(0, 9)}}
    assert start.unlisted(listed, listed) == queues
    found = reconciled(start, {"T": {**listed["T"], **({} if there is None else {Q1: there})}})
    assert found.begin == {"T": {Q0: 3, **result.begin}}
    assert found.positions["T"].keys() == {Q0, *result.begin}
    assert found.new == {}
    assert found.kept == ({"T": result.kept} if result.kept else {})
    assert start_with(found.lost, result.lost)
    assert start_with(found.hidden, result.hidden)


def test_s5_queues_of_one_broker_of_a_cluster_may_be_hidden() -> None:
    start = checkpoint({"T": {A0: 1, A1: 2, B0: 3}}, epochs={})
    bounds = {"T": {A0: queue(0, 1, 0), B0: queue(0, 3, 0), A1: hidden(0, 4, 0)}}
    found = reconciled(start, bounds)
    assert (found.begin, found.kept) == ({"T": {A0: 1, B0: 3}}, {"T": {A1: 2}})
    assert start_with(found.hidden, ("offsets [2, 4) of queue 1 of broker a of topic 'T'",))


@dataclass(frozen=True, slots=True)
class Topics:
    """A query's start and the broker's answer, and its positions then."""

    start: Checkpoint
    bounds: Bounds
    begin: Positions
    new: Positions = field(default_factory=dict)
    kept: Positions = field(default_factory=dict)
    epochs: Epochs = field(default_factory=lambda: EPOCHS)
    lost: tuple[str, ...] = ()
    read: frozenset[str] = frozenset({"T", "U"})


BOTH = checkpoint({"T": {Q0: 15}}, {"T": {Q1: 2}})
AWAY = checkpoint({}, {"T": {Q0: 15, Q1: 2}})
WITH_U = checkpoint({"T": {Q0: 15}, "U": {Q0: 1}})
U: Bounds = {"U": {Q0: queue(0, 1, 3)}}
ONLY_U = frozenset({"U"})
TWO_GONE = tuple(f"offsets from {end} on of queue " for end in ("15", "2"))

TOPICS = {
    "new": Topics(checkpoint({}), {"T": {Q0: queue(0, 9)}}, {"T": {Q0: 0}}, new={"T": {Q0: 0}}),
    "without queues": Topics(BOTH, {"T": {}}, {"T": {}}, kept={"T": {Q0: 15, Q1: 2}}),
    "deleted": Topics(BOTH, {}, {}, kept={"T": {Q0: 15, Q1: 2}}, lost=TWO_GONE),
    "deleted before": Topics(AWAY, {}, {}, kept={"T": {Q0: 15, Q1: 2}}),
    "deleted without an epoch": Topics(
        checkpoint({"T": {Q0: 15}}, epochs={}), {}, {}, epochs={}, lost=(GONE + DELETED,)
    ),
    "back": Topics(AWAY, {"T": {Q0: queue(0, 20), Q1: queue(0, 2)}}, {"T": {Q0: 15, Q1: 2}}),
    "recreated": Topics(
        BOTH,
        {"T": {Q0: queue(1, 20, 8)}},
        {"T": {Q0: 1}},
        new={"T": {Q0: 1}},
        epochs={"T": 8},
        lost=TWO_GONE,
    ),
    "recreated, all of it hidden": Topics(
        BOTH, {"T": {Q0: hidden(0, 20, 8)}}, {"T": {}}, epochs={"T": 8}, lost=TWO_GONE
    ),
    "recreated after its loss": Topics(
        AWAY,
        {"T": {Q0: queue(0, 20, 8), Q1: queue(0, 2, 8)}},
        {"T": {Q0: 0, Q1: 0}},
        new={"T": {Q0: 0, Q1: 0}},
        epochs={"T": 8},
    ),
    "not read": Topics(
        WITH_U, U, {"U": {Q0: 1}}, kept={"T": {Q0: 15}}, epochs={"T": 7, "U": 3}, read=ONLY_U
    ),
    # A recovery is reported once: its cut queues are cut, read or not.
    "not read, and cut": Topics(
        WITH_U,
        {**U, "T": {Q0: queue(0, 20, cut=9)}},
        {"U": {Q0: 1}},
        kept={"T": {Q0: 9}},
        epochs={"T": 7, "U": 3},
        read=ONLY_U,
    ),
    "not read, and recreated": Topics(
        WITH_U,
        {**U, "T": {Q0: queue(0, 20, 8)}},
        {"U": {Q0: 1}},
        epochs={"T": 8, "U": 3},
        read=ONLY_U,
    ),
}


@pytest.mark.parametrize("case", TOPICS.values(), ids=TOPICS)
def test_s5_a_topic_that_is_gone_is_a_loss_once_and_keeps_its_positions_by_its_epoch(
    case: Topics,
) -> None:
    found = reconciled(case.start, case.bounds, case.read)
    assert (found.begin, found.new) == (case.begin, case.new)
    assert (found.kept, found.epochs) == (case.kept, case.epochs)
    assert start_with(found.lost, case.lost)
    what = RECREATED if found.epochs.get("T") == 8 else DELETED
    assert all(text.endswith(what) for text in texts(found.lost))
    assert found.hidden == []
    after = Checkpoint(found.end, found.kept, Origin(epochs=found.epochs))
    assert reconciled(after, case.bounds, case.read).lost == []


def test_s5_a_loss_goes_as_far_as_the_queue_was_seen() -> None:
    seen: Bounds = {"T": {Q0: queue(0, 42)}}
    for bounds in ({"T": {Q0: queue(0, 20)}}, {"T": {Q0: queue(0, 50, 8)}}, {}):
        [loss] = reconciled(checkpoint({"T": {Q0: 30}}), bounds, seen=seen).lost
        assert (loss.begin, loss.end, loss.count) == (30, 42, 12)


def test_s5_the_positions_of_topics_that_are_gone_are_bounded() -> None:
    names = [f"gone-{number}" for number in range(KEPT_TOPICS_MAX + 1)]
    kept: Positions = {name: {Q0: 1} for name in names}
    epochs = dict.fromkeys(["a", *names], 5) | EPOCHS
    start = checkpoint({"a": {Q0: 1}, "T": {Q0: 1, Q1: 1}}, kept, epochs=epochs)
    found = reconciled(start, {"T": {Q0: queue(0, 1)}}, frozenset({*names, "a", "T"}))
    assert list(found.kept) == [*names[2:], "a", "T"]


# --- A planned batch ---


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch from `begin` to 20 of queue 0 of topic T, its remaining range, and its losses."""

    begin: int | None
    bounds: Bounds
    left: tuple[int, int]
    lost: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


def of(there: QueueBounds) -> Bounds:
    return {"T": {Q0: there}}


ALL = "offsets [5, 20) of queue 0 of topic 'T' are gone: "
ALL_HIDDEN = ("offsets [5, 20) of queue 0 of topic 'T' are out of reach",)

BATCHES = {
    "as planned": Batch(5, of(queue(0, 30)), (5, 20)),
    "new queue": Batch(None, of(queue(10, 30)), (10, 20)),
    "start removed": Batch(
        5,
        of(queue(10, 30)),
        (10, 20),
        ("offsets [5, 10) of queue 0 of topic 'T' are gone: the queue now starts at 10",),
    ),
    "all removed": Batch(5, of(queue(25, 30)), (20, 20), (ALL + "the queue now starts at 25",)),
    "cut": Batch(5, of(queue(0, 30, cut=12)), (5, 12), ("offsets [12, 20) " + TAKEN,)),
    "cut at its end": Batch(5, of(queue(0, 30, cut=20)), (5, 20)),
    "cut, and its start removed": Batch(
        5,
        of(queue(9, 30, cut=12)),
        (9, 12),
        (
            "offsets [12, 20) " + TAKEN,
            "offsets [5, 9) of queue 0 of topic 'T' are gone: the queue now starts at 9",
        ),
    ),
    "answer of a slave": Batch(5, of(queue(0, 9, is_lagging=True)), (5, 20)),
    "topic recreated": Batch(5, of(queue(0, 30, epoch=8)), (20, 20), (ALL + RECREATED,)),
    "topic recreated without the queue": Batch(
        5, {"T": {Q1: queue(0, 9, epoch=8)}}, (20, 20), (ALL + RECREATED,)
    ),
    "topic deleted": Batch(5, {}, (20, 20), (ALL + DELETED,)),
    "hidden": Batch(5, of(hidden(2, 30)), (5, 20), hidden=ALL_HIDDEN),
    "hidden, no answer": Batch(5, {"T": {Q1: queue(0, 9)}}, (5, 20), hidden=ALL_HIDDEN),
    "topic without queues": Batch(5, {"T": {}}, (5, 20), hidden=ALL_HIDDEN),
    "hidden, new queue": Batch(None, of(hidden(2, 30)), (2, 20), hidden=("offsets [2, 20) of ",)),
    "hidden and cut": Batch(
        5,
        of(hidden(2, 30, cut=12)),
        (5, 12),
        ("offsets [12, 20) " + TAKEN,),
        ("offsets [5, 12) of ",),
    ),
    "hidden, start removed": Batch(
        5, of(hidden(9, 30)), (9, 20), ("offsets [5, 9) of ",), ("offsets [9, 20) of ",)
    ),
    "hidden, all removed": Batch(5, of(hidden(25, 30)), (20, 20), ("offsets [5, 20) of ",)),
}


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_s5_a_batch_reads_what_is_left_of_it(case: Batch) -> None:
    begin: Positions = {"T": {} if case.begin is None else {Q0: case.begin}}
    found = reconciled(checkpoint({"T": {Q0: 20}}, begin=begin), case.bounds)
    assert found.begin == {"T": {Q0: case.left[0]}}
    assert found.end == {"T": {Q0: case.left[1]}}
    assert start_with(found.lost, case.lost)
    assert start_with(found.hidden, case.hidden)


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_s5_an_empty_batch_loses_nothing_unless_its_end_is_cut(case: Batch) -> None:
    empty = checkpoint({"T": {Q0: 20}}, begin={"T": {Q0: 20}})
    found = reconciled(empty, case.bounds)
    assert (found.lost == [], found.hidden) == (not found.is_cut, [])


def test_s5_a_batch_reads_no_queue_that_was_not_planned() -> None:
    planned = checkpoint({"T": {Q0: 20}}, begin={"T": {Q0: 5, Q1: 3}, "V": {Q0: 1}})
    bounds: Bounds = {"T": {Q0: queue(0, 30), Q1: queue(0, 9), Q2: queue(0, 9)}, **U}
    found = reconciled(planned, bounds)
    assert (found.begin, found.end) == ({"T": {Q0: 5}}, {"T": {Q0: 20}})
    assert (found.lost, found.hidden) == ([], [])
