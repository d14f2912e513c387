"""Positions of a running query against the broker's queues."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import OffsetError, OptionError
from pyspark_rocketpy.offsets import Bounds, Positions, QueueBounds
from pyspark_rocketpy.source.plan import positions
from pyspark_rocketpy.source.plan.reconcile import Checkpoint, reconcile
from pyspark_rocketpy.transport.values import Subscription
from tests.support.queues import Q0, Q1, Q2


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


def pinned(pin: Positions, begin: Positions, found: Bounds) -> Positions:
    result = reconcile(Checkpoint(begin), found, begin.keys())
    return positions.pinned_end(pin, result.positions, result.begin, result.end)


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
