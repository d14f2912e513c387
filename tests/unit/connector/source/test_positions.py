"""Positions of a running query against what the broker has."""

from __future__ import annotations

import logging

import pytest

from pyspark_rocketpy.errors import DataLossError, OffsetError, OptionError
from pyspark_rocketpy.offsets import Bounds, Positions, QueueBounds
from pyspark_rocketpy.source import losses, positions
from pyspark_rocketpy.transport.values import Subscription
from tests.queues import Q0, Q1, Q2


def bounds(low: int, high: int) -> Bounds:
    return {"T": {Q0: QueueBounds(low, high, -1)}}


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match="'U' does not exist"):
        positions.require_topics(Subscription(("T", "U"), None, "g"), bounds(0, 1))
    positions.require_topics(Subscription((), ".*", "g"), {})


ORDERS: Positions = {"orders": {Q0: 3}}
BOTH: Positions = {"bills": {Q0: 1}, "orders": {Q0: 3}}


@pytest.mark.parametrize(
    ("subscription", "words"),
    [
        (Subscription(("bills",), None, "g"), "but the query reads topic 'bills'; read 'orders'"),
        (Subscription(("a", "b"), None, "g"), "but the query reads topics 'a', 'b'; read 'orders'"),
        (Subscription((), "order", "g"), "but the query reads topicPattern 'order'; read 'orders'"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_checkpoint_of_other_topics_is_named(
    subscription: Subscription, words: str, strict: bool
) -> None:
    with pytest.raises(OffsetError, match="is of topic 'orders', ") as caught:
        positions.require_same_topics(subscription, ORDERS, fail_on_data_loss=strict)
    assert words in str(caught.value)
    assert str(caught.value).endswith("or start with a new checkpointLocation")


def test_one_topic_of_several_may_be_left_out_where_loss_is_allowed() -> None:
    orders = Subscription(("orders",), None, "g")
    with pytest.raises(OffsetError, match=r"'bills', .*, or set option failOnDataLoss to false"):
        positions.require_same_topics(orders, BOTH, fail_on_data_loss=True)
    positions.require_same_topics(orders, BOTH, fail_on_data_loss=False)


@pytest.mark.parametrize(
    "subscription",
    [Subscription(("orders", "bills", "new"), None, "g"), Subscription((), "[bo].*", "g")],
)
@pytest.mark.parametrize("logged", [{}, ORDERS, BOTH])
def test_a_checkpoint_of_topics_that_are_read_is_accepted(
    subscription: Subscription, logged: Positions
) -> None:
    positions.require_same_topics(subscription, logged, fail_on_data_loss=True)


@pytest.mark.parametrize(("begin", "end"), [(5, 15), (5, 8)])
def test_s5_offsets_below_the_minimum_are_lost(
    begin: int, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    start: Positions = {"T": {Q0: begin}}
    stop: Positions = {"T": {Q0: end}}
    low = min(10, end)
    lost = positions.below_minimum(start, stop, bounds(10, 20))
    with pytest.raises(DataLossError) as caught:
        losses.settle(lost, fail_on_data_loss=True)
    for part in (f"[{begin}, {low})", "queue 0", "topic 'T'", "option failOnDataLoss"):
        assert part in str(caught.value)
    with caplog.at_level(logging.WARNING):
        losses.settle(lost, fail_on_data_loss=False)
    assert f"{low - begin} messages are passed over" in caplog.text
    assert positions.without(lost, start, stop, bounds(10, 20)) == {"T": {Q0: low}}


def test_s5_several_losses_are_told_as_one_error() -> None:
    lost = [losses.Loss("T", queue, 0, 5, "are gone") for queue in (Q0, Q1, Q2)]
    with pytest.raises(DataLossError, match="and of 2 more queues"):
        losses.settle(lost, fail_on_data_loss=True)
    losses.settle([], fail_on_data_loss=True)


def test_s5_a_queue_gone_between_planning_and_reading_is_lost_as_far_as_the_batch_goes() -> None:
    [loss] = positions.below_minimum({"T": {Q0: 3}}, {"T": {Q0: 9}}, {})
    assert (loss.begin, loss.end) == (3, 9)
    assert positions.without([loss], {"T": {Q0: 3}}, {"T": {Q0: 9}}, {}) == {"T": {Q0: 9}}


def test_new_queues_begin_at_their_minimum() -> None:
    found = bounds(10, 20)
    assert positions.without([], {}, {"T": {Q0: 15}}, found) == {"T": {Q0: 10}}
    assert positions.entering({}, found, {"T": {Q0: 20}}) == {"T": {Q0: 10}}
    assert positions.reading_from({}, found) == {"T": {Q0: 10}}
    assert positions.entering({"T": {Q0: 20}}, found, {"T": {Q0: 20}}) == {}
    assert positions.below_minimum({}, {"T": {Q0: 20}}, found) == []


def test_s5_a_queue_that_went_back_or_away_is_lost_as_far_as_it_was_seen() -> None:
    start: Positions = {"T": {Q0: 30}}
    for found, word in ((bounds(0, 20), "ends at 20"), ({}, "removed")):
        [unseen] = positions.vanished(start, found, None)
        [seen] = positions.vanished(start, found, bounds(0, 42))
        assert (unseen.count, seen.count, seen.begin) == (0, 12, 30)
        assert word in str(unseen)
        assert "offsets from 30 on of queue 0 of topic 'T'" in str(unseen)
    assert positions.vanished(start, bounds(0, 30), None) == []


def test_s5_a_queue_made_anew_is_read_from_its_begin() -> None:
    start: Positions = {"T": {Q0: 30}}
    found = bounds(2, 20)
    assert positions.reading_from(start, found) == {"T": {Q0: 2}}
    assert positions.entering(start, found, {"T": {Q0: 20}}) == {"T": {Q0: 2}}


def test_reading_goes_on_behind_a_lost_head() -> None:
    assert positions.reading_from({"T": {Q0: 5}}, bounds(10, 20)) == {"T": {Q0: 10}}


def pinned(pin: Positions, begin: Positions, found: Bounds) -> Positions:
    standing = positions.reading_from(begin, found)
    return positions.pinned(pin, begin, standing, positions.latest_positions(found))


def test_available_now_ends_where_it_was_pinned() -> None:
    pin: Positions = {"T": {Q0: 20}}
    assert pinned(pin, {"T": {Q0: 5}}, bounds(0, 50)) == pin
    assert pinned(pin, {"T": {Q0: 25}}, bounds(0, 50)) == {"T": {Q0: 25}}
    assert pinned(pin, {"T": {Q0: 25}}, bounds(0, 3)) == {"T": {Q0: 3}}
    assert pinned(pin, {"T": {Q0: 5}}, {}) == {}


def test_available_now_leaves_queues_that_came_since_to_the_next_run() -> None:
    found: Bounds = {"T": dict.fromkeys((Q0, Q1, Q2), QueueBounds(0, 9, -1))}
    begin: Positions = {"T": {Q0: 1, Q1: 4}}
    assert pinned({"T": {Q0: 5}}, begin, found) == {"T": {Q0: 5, Q1: 4}}


# --- Cut by a recovery ---


def cut_at(offset: int | None, high: int = 20) -> Bounds:
    return {"T": {Q0: QueueBounds(2, high, -1, 0, offset)}}


@pytest.mark.parametrize(
    ("cut", "offset", "lost"),
    [(None, 15, None), (5, 15, (5, 15)), (14, 15, (14, 15)), (15, 15, None), (16, 15, None)],
)
def test_s5_an_offset_beyond_a_cut_is_a_loss_from_there_on(
    cut: int | None, offset: int, lost: tuple[int, int] | None
) -> None:
    taken = positions.taken_back({"T": {Q0: offset}}, cut_at(cut))
    assert [(loss.begin, loss.end) for loss in taken] == ([] if lost is None else [lost])
    begin = positions.cut_back({"T": {Q0: offset}}, taken)
    assert begin == {"T": {Q0: offset if lost is None else lost[0]}}
    new = positions.entering(begin, cut_at(cut), {"T": {Q0: 20}}, taken)
    assert new == ({} if lost is None else {"T": {Q0: lost[0]}})


def test_s5_queues_that_are_gone_or_of_a_topic_made_again_are_not_cut() -> None:
    reached: Positions = {"T": {Q0: 15, Q1: 15}, "gone": {Q0: 15}}
    assert len(positions.taken_back(reached, cut_at(5))) == 1
    assert positions.taken_back(reached, cut_at(5), frozenset({"T"})) == []


def test_s5_what_was_taken_back_is_named_or_said(caplog: pytest.LogCaptureFixture) -> None:
    taken = positions.taken_back({"T": {Q0: 15}}, cut_at(5))
    told = (
        "offsets [5, 15) of queue 0 of topic 'T' were taken back: a power cut took messages from "
        "the broker that had been read, and what is stored there now has not been read; "
    )
    with pytest.raises(DataLossError) as caught:
        losses.settle(taken, fail_on_data_loss=True)
    assert told in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        losses.settle(taken, fail_on_data_loss=False)
    assert told + "10 messages are gone, and the query goes on at 5" in caplog.text
