"""Brokers of a cluster that are away, late, or renamed since the checkpoint."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError, OffsetError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.source.brokers import BrokerOutages, with_broker_names
from pyspark_rocketpy.source.plan import positions
from pyspark_rocketpy.source.plan.reconcile import (
    Answer,
    Checkpoint,
    Standing,
    reconcile,
    reconcile_batch,
)
from tests.queues import Q0

A0, A1 = BrokerQueue("broker-a", 0), BrokerQueue("broker-a", 1)
B0 = BrokerQueue("broker-b", 0)
REACHED: Positions = {"T": {A0: 5, A1: 6, B0: 7}}
ONLY_A: Bounds = {"T": {A0: QueueBounds(0, 9, -1), A1: QueueBounds(0, 9, -1)}}
TIMEOUT_MS = 1_000


class Watch:
    """A clock in ms, and the broker outages that it times."""

    def __init__(self, *, is_fatal: bool = True) -> None:
        self.now_ms = 0
        self.absences = BrokerOutages(TIMEOUT_MS, is_fatal=is_fatal, now=lambda: self.now_ms)

    def filled(self, bounds: Bounds, after_ms: int = 0) -> Bounds:
        self.now_ms += after_ms
        return self.absences.filled(bounds, REACHED)


def standing_at(bounds: Bounds) -> Standing:
    return reconcile(Checkpoint(REACHED), Answer(bounds, {}, bounds.keys(), REACHED.keys()))


def test_queues_of_a_broker_that_is_away_wait_and_are_no_loss() -> None:
    filled = Watch().filled(ONLY_A)
    assert filled["T"][B0] == QueueBounds(7, 7, -1, is_behind=True)
    assert {queue: filled["T"][queue] for queue in (A0, A1)} == ONLY_A["T"]
    standing = standing_at(filled)
    assert (standing.lost, standing.kept) == ([], {})
    assert standing.begin == REACHED
    assert standing.end == {"T": {A0: 9, A1: 9, B0: 7}}
    assert ONLY_A["T"].keys() == {A0, A1}


def test_a_topic_all_of_whose_brokers_are_away_waits() -> None:
    filled = Watch().filled({})
    assert positions.latest_positions(filled) == REACHED


def test_a_queue_that_a_present_broker_does_not_list_keeps_its_place() -> None:
    shrunk: Bounds = {"T": {A0: QueueBounds(0, 9, -1), B0: QueueBounds(0, 7, -1)}}
    standing = standing_at(Watch().filled(shrunk))
    assert (standing.lost, standing.kept) == ([], {"T": {A1: 6}})
    assert standing.begin == {"T": {A0: 5, B0: 7}}


def test_what_was_planned_of_a_broker_that_goes_away_stays_planned() -> None:
    end: Positions = {"T": {A0: 9, A1: 6, B0: 12}}
    filled = BrokerOutages(TIMEOUT_MS, is_fatal=True).filled(ONLY_A, REACHED, end)
    assert filled["T"][B0] == QueueBounds(7, 12, -1, is_behind=True)
    batch = reconcile_batch(REACHED, end, {}, filled, filled.keys())
    assert (batch.begin, batch.end, batch.lost) == (REACHED, end, [])


def test_a_slave_that_is_behind_takes_nothing_back() -> None:
    behind: Bounds = {"T": {**ONLY_A["T"], B0: QueueBounds(2, 4, -1, is_behind=True)}}
    filled = Watch().filled(behind)
    assert filled["T"][B0] == QueueBounds(2, 7, -1, is_behind=True)
    assert standing_at(filled).lost == []


def test_a_broker_that_is_away_for_too_long_fails_the_query() -> None:
    watch = Watch()
    watch.filled(ONLY_A)
    watch.filled(ONLY_A, TIMEOUT_MS - 1)
    with pytest.raises(ConnectionFailedError, match=r"broker-b.* 'T'.*brokerAbsenceTimeout"):
        watch.filled(ONLY_A, 1)


def test_a_broker_that_was_back_may_be_away_again(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    watch.filled(ONLY_A)
    watch.filled({"T": {**ONLY_A["T"], B0: QueueBounds(0, 7, -1)}}, TIMEOUT_MS - 1)
    watch.filled(ONLY_A, 1)
    watch.filled(ONLY_A, TIMEOUT_MS - 1)
    told = [record.message for record in caplog.records]
    away = "broker broker-b, with queues of topic T, is away"
    assert told == [away, "broker broker-b is back, with topic T", away]


def test_a_query_may_go_on_without_it_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch(is_fatal=False)
    for _ in range(5):
        assert watch.filled(ONLY_A, TIMEOUT_MS)["T"][B0].max_offset == 7
    [told] = [record.message for record in caplog.records][1:]
    assert told.startswith("broker broker-b, which has queues of topic 'T', has been away for 1 s,")
    assert told.endswith("; the query goes on without it, and waits for it")


def test_a_checkpoint_of_the_one_broker_is_read_on_by_its_name_and_back() -> None:
    of_one: Positions = {"T": {Q0: 5}}
    through_names: Bounds = {"T": {A0: QueueBounds(0, 9, -1)}}
    through_endpoints: Bounds = {"T": {Q0: QueueBounds(0, 9, -1)}}
    assert with_broker_names(of_one, through_names) == {"T": {A0: 5}}
    assert with_broker_names({"T": {A0: 5}}, through_endpoints) == of_one
    assert with_broker_names(of_one, through_endpoints) == of_one
    assert with_broker_names(of_one, {}) == of_one
    assert with_broker_names(REACHED, ONLY_A) == REACHED


@pytest.mark.parametrize(
    ("logged", "there", "words"),
    [
        ({"T": {Q0: 5}}, [A0, B0], "at the one broker of .* it at brokers broker-a, broker-b of"),
        (REACHED, [Q0], "at brokers broker-a, broker-b of .* it at the one broker of option end"),
    ],
)
def test_a_checkpoint_that_may_mean_several_brokers_is_refused(
    logged: Positions, there: list[BrokerQueue], words: str
) -> None:
    with pytest.raises(OffsetError, match=words):
        with_broker_names(logged, {"T": dict.fromkeys(there, QueueBounds(0, 9, -1))})
