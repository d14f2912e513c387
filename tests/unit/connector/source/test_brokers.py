"""Brokers of a cluster that are away, late, or renamed since the checkpoint."""

from __future__ import annotations

import pytest

from pyspark_rocketpy.errors import ConnectionFailedError, OffsetError
from pyspark_rocketpy.offsets import Bounds, BrokerQueue, Positions, QueueBounds
from pyspark_rocketpy.source.brokers import BrokerOutages, with_broker_names
from pyspark_rocketpy.source.plan import positions
from pyspark_rocketpy.source.plan.reconcile import Checkpoint, Reconciled, reconcile
from tests.support.queues import Q0

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
        return self.absences.filled(bounds, Checkpoint(REACHED), {"T"})


def reconciled(bounds: Bounds) -> Reconciled:
    return reconcile(Checkpoint(REACHED), bounds, {"T"})


def test_queues_of_a_broker_that_is_away_wait_and_are_no_loss() -> None:
    filled = Watch().filled(ONLY_A)
    assert filled["T"][B0] == QueueBounds(7, 7, -1, is_lagging=True)
    assert {queue: filled["T"][queue] for queue in (A0, A1)} == ONLY_A["T"]
    found = reconciled(filled)
    assert (found.lost, found.kept) == ([], {})
    assert found.begin == REACHED
    assert found.end == {"T": {A0: 9, A1: 9, B0: 7}}
    assert ONLY_A["T"].keys() == {A0, A1}


def test_a_topic_all_of_whose_brokers_are_away_waits() -> None:
    filled = Watch().filled({})
    assert positions.latest_positions(filled) == REACHED


def test_a_queue_that_a_present_broker_does_not_list_keeps_its_position() -> None:
    shrunk: Bounds = {"T": {A0: QueueBounds(0, 9, -1), B0: QueueBounds(0, 7, -1)}}
    found = reconciled(Watch().filled(shrunk))
    assert (found.lost, found.kept) == ([], {"T": {A1: 6}})
    assert found.begin == {"T": {A0: 5, B0: 7}}


@pytest.mark.parametrize("listed", [{}, {"T": {}}])
def test_a_topic_without_listed_queues_keeps_its_positions_while_its_brokers_are_away(
    listed: Positions,
) -> None:
    known = Checkpoint({"U": {B0: 7}, **listed}, kept={"T": {A0: 5, A1: 6}})
    bounds: Bounds = {"U": {B0: QueueBounds(0, 9, -1)}}
    outages = BrokerOutages(TIMEOUT_MS, is_fatal=True)
    found = reconcile(known, outages.filled(bounds, known, {"T", "U"}), {"T", "U"})
    assert (found.lost, found.kept) == ([], known.kept)
    assert found.begin == {"U": {B0: 7}}
    again = reconcile(Checkpoint(found.positions, found.kept), ONLY_A | bounds, {"T", "U"})
    assert again.begin == {"T": {A0: 5, A1: 6}, "U": {B0: 7}}


def test_what_was_planned_of_a_broker_that_goes_away_stays_planned() -> None:
    end: Positions = {"T": {A0: 9, A1: 6, B0: 12}}
    planned = Checkpoint(end, begin=REACHED)
    filled = BrokerOutages(TIMEOUT_MS, is_fatal=True).filled(ONLY_A, planned, {"T"})
    assert filled["T"][B0] == QueueBounds(7, 12, -1, is_lagging=True)
    found = reconcile(planned, filled, {"T"})
    assert (found.begin, found.end, found.lost) == (REACHED, end, [])


def test_queues_that_are_not_read_are_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    outages = BrokerOutages(TIMEOUT_MS, is_fatal=True)
    there: Bounds = {"T": {A0: QueueBounds(0, 9, -1)}}
    kept: Positions = {"U": {B0: 3}}
    for start in (
        Checkpoint({"T": {A0: 5}}, kept),
        Checkpoint({"T": {A0: 5}, "U": {B0: 3}}),
        # A batch's start has the kept positions, too.
        Checkpoint({"T": {A0: 9}}, begin={"T": {A0: 5}, **kept}),
    ):
        assert outages.filled(there, start, {"T"}) == there
    assert caplog.records == []


def test_a_slave_that_is_behind_takes_nothing_back() -> None:
    behind: Bounds = {"T": {**ONLY_A["T"], B0: QueueBounds(2, 4, -1, is_lagging=True)}}
    filled = Watch().filled(behind)
    assert filled["T"][B0] == QueueBounds(2, 7, -1, is_lagging=True)
    assert reconciled(filled).lost == []


def test_a_broker_that_is_away_for_too_long_fails_the_query() -> None:
    watch = Watch()
    watch.filled(ONLY_A)
    watch.filled(ONLY_A, TIMEOUT_MS - 1)
    with pytest.raises(ConnectionFailedError, match=r"broker-b.* 'T'.*brokerUnavailableTimeout"):
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
    assert told.endswith("; the query continues without it, and waits for it")


def named(positions: Positions, bounds: Bounds) -> Positions:
    """Returns the positions with the names in the bounds, which all parts of a checkpoint get."""
    found = with_broker_names(Checkpoint(positions, positions, begin=positions), bounds)
    assert found.listed == found.kept == found.begin
    assert with_broker_names(Checkpoint(positions), bounds).begin is None
    return found.listed


def test_a_checkpoint_of_the_one_broker_is_read_on_by_its_name_and_back() -> None:
    of_one: Positions = {"T": {Q0: 5}}
    through_names: Bounds = {"T": {A0: QueueBounds(0, 9, -1)}}
    through_endpoints: Bounds = {"T": {Q0: QueueBounds(0, 9, -1)}}
    assert named(of_one, through_names) == {"T": {A0: 5}}
    assert named({"T": {A0: 5}}, through_endpoints) == of_one
    assert named(of_one, through_endpoints) == of_one
    assert named(of_one, {}) == of_one
    assert named(REACHED, ONLY_A) == REACHED


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
        named(logged, {"T": dict.fromkeys(there, QueueBounds(0, 9, -1))})
