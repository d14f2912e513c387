"""A query's positions against the broker's queues, as tables."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest

from pyspark_rocketpy.errors import DataLossError
from pyspark_rocketpy.offsets import (
    Bounds,
    BrokerQueue,
    Positions,
    QueueBounds,
    first_offset,
    kept_of,
    next_offset,
    positions_of,
)
from pyspark_rocketpy.source.plan import losses, reconcile
from pyspark_rocketpy.source.plan.reconcile import (
    Answer,
    Checkpoint,
    Standing,
    reconcile_batch,
)
from tests.queues import Q0, Q1, Q2

EPOCHS = {"T": 7}
A0, A1, B0 = BrokerQueue("a", 0), BrokerQueue("a", 1), BrokerQueue("b", 0)


def queue(
    low: int, high: int, epoch: int = 7, cut: int | None = None, *, is_behind: bool = False
) -> QueueBounds:
    return QueueBounds(low, high, -1, epoch, cut, is_behind=is_behind)


def hide(queues: dict[BrokerQueue, QueueBounds]) -> dict[BrokerQueue, QueueBounds]:
    return {queue: replace(there, is_hidden=True) for queue, there in queues.items()}


def stand(
    checkpoint: Checkpoint,
    listed: Bounds,
    hidden: Bounds | None = None,
    *,
    read: frozenset[str] = frozenset({"T", "U"}),
    seen: Bounds | None = None,
) -> Standing:
    away = {topic: hide(its) for topic, its in (hidden or {}).items()}
    answer = Answer(listed, away, listed.keys(), read, seen)
    return reconcile.reconcile(checkpoint, answer)


def texts(lost: list[losses.Loss]) -> list[str]:
    return [str(loss) for loss in lost]


# --- Listed queues ---


@pytest.mark.parametrize(
    ("place", "there", "begin", "is_new", "lost"),
    [
        (None, queue(10, 20), 10, True, ""),
        (15, queue(10, 20), 15, False, ""),
        (20, queue(10, 20), 20, False, ""),
        # Reported when the batch is planned.
        (5, queue(10, 20), 10, False, ""),
        (30, queue(2, 20), 2, True, "offsets from 30 on of queue 0 of topic 'T' are gone: the que"),
        (30, queue(2, 20, is_behind=True), 30, False, ""),
        (15, queue(2, 20, cut=5), 5, True, "offsets [5, 15) of queue 0 of topic 'T' were taken"),
        (15, queue(2, 20, cut=14), 14, True, "offsets [14, 15) of queue 0 of topic 'T' were"),
        (15, queue(2, 20, cut=15), 15, False, ""),
        (15, queue(2, 20, cut=16), 15, False, ""),
        (15, queue(8, 20, cut=5), 8, True, "offsets [5, 15) of queue 0"),
        (15, queue(2, 9, cut=5), 5, True, "offsets [5, 15) of queue 0"),
        (
            15,
            queue(2, 20, epoch=8),
            2,
            True,
            "offsets from 15 on of queue 0 of topic 'T' are gone: ",
        ),
        (15, queue(2, 20, epoch=0), 15, False, ""),
    ],
)
def test_s5_a_listed_queue_is_read_from_its_place_or_said_why_not(
    place: int | None, there: QueueBounds, begin: int, is_new: bool, lost: str
) -> None:
    listed = {} if place is None else {"T": {Q0: place}}
    standing = stand(Checkpoint(listed, {}, EPOCHS), {"T": {Q0: there}})
    assert standing.begin == {"T": {Q0: begin}}
    assert standing.new == ({"T": {Q0: begin}} if is_new else {})
    assert (standing.kept, standing.hidden) == ({}, [])
    assert [text[: len(lost)] for text in texts(standing.lost)] == ([lost] if lost else [])


def test_s5_a_loss_goes_as_far_as_the_queue_was_seen() -> None:
    seen: Bounds = {"T": {Q0: queue(0, 42)}}
    for listed in ({"T": {Q0: queue(0, 20)}}, {}):
        [loss] = stand(Checkpoint({"T": {Q0: 30}}, {}, EPOCHS), listed, seen=seen).lost
        assert (loss.begin, loss.end, loss.count) == (30, 42, 12)


# --- Queues that are not listed ---


@pytest.mark.parametrize(
    ("there", "kept", "lost", "hidden"),
    [
        # The broker does not answer this.
        (None, 15, "", ""),
        (queue(2, 15), 15, "", ""),
        (queue(15, 15), 15, "", ""),
        (queue(2, 18), 15, "", "offsets [15, 18) of queue 1 of topic 'T' are out of reach: they"),
        (queue(2, 9), None, "offsets from 15 on of queue 1 of topic 'T' are gone: the queue e", ""),
        (queue(2, 9, is_behind=True), 15, "", ""),
        (queue(2, 5, cut=5), 5, "offsets [5, 15) of queue 1 of topic 'T' were taken back", ""),
        # Another topic has had its name since the first query.
        (queue(0, 3, epoch=8), 15, "", ""),
    ],
)
@pytest.mark.parametrize("was_listed", [True, False])
def test_s5_a_hidden_queue_keeps_its_place(
    was_listed: bool, there: QueueBounds | None, kept: int | None, lost: str, hidden: str
) -> None:
    checkpoint = Checkpoint({"T": {Q0: 3, Q1: 15}}, {}, EPOCHS)
    if not was_listed:
        checkpoint = Checkpoint({"T": {Q0: 3}}, {"T": {Q1: 15}}, EPOCHS)
    listed: Bounds = {"T": {Q0: queue(0, 9)}}
    assert checkpoint.unlisted(listed, listed.keys()) == {"T": {Q1: 15}}
    standing = stand(checkpoint, listed, {} if there is None else {"T": {Q1: there}})
    assert standing.begin == standing.reached == {"T": {Q0: 3}}
    assert standing.kept == ({} if kept is None else {"T": {Q1: kept}})
    for found, words in ((standing.lost, lost), (standing.hidden, hidden)):
        assert [text[: len(words)] for text in texts(found)] == ([words] if words else [])


def test_s5_a_queue_that_came_back_between_two_questions_is_read_next_time() -> None:
    checkpoint = Checkpoint({"T": {Q0: 3}}, {"T": {Q1: 15}}, EPOCHS)
    back: Bounds = {"T": {Q1: queue(0, 18)}}
    answer = Answer({"T": {Q0: queue(0, 3)}}, back, {"T"}, {"T"})
    standing = reconcile.reconcile(checkpoint, answer)
    assert (standing.hidden, standing.lost, standing.kept) == ([], [], {"T": {Q1: 15}})


@pytest.mark.parametrize(
    ("there", "begin"), [(queue(0, 15), 15), (queue(0, 30), 15), (queue(20, 30), 20)]
)
def test_s5_a_queue_that_is_back_is_read_from_its_place(there: QueueBounds, begin: int) -> None:
    checkpoint = Checkpoint({"T": {Q0: 3}}, {"T": {Q1: 15}}, EPOCHS)
    standing = stand(checkpoint, {"T": {Q0: queue(0, 3), Q1: there}})
    assert standing.begin == {"T": {Q0: 3, Q1: begin}}
    assert (standing.new, standing.kept, standing.lost) == ({}, {}, [])


def test_s5_queues_of_one_broker_of_a_cluster_may_be_hidden() -> None:
    checkpoint = Checkpoint({"T": {A0: 1, A1: 2, B0: 3}})
    listed: Bounds = {"T": {A0: queue(0, 1, 0), B0: queue(0, 3, 0)}}
    hidden: Bounds = {"T": {A1: queue(0, 4, 0)}}
    standing = stand(checkpoint, listed, hidden)
    assert (standing.begin, standing.kept) == ({"T": {A0: 1, B0: 3}}, {"T": {A1: 2}})
    assert texts(standing.hidden)[0].startswith(
        "offsets [2, 4) of queue 1 of broker a of topic 'T'"
    )


# --- Topics that are not there ---


def test_s5_a_topic_that_is_gone_is_a_loss_once_and_keeps_its_place_by_its_epoch() -> None:
    checkpoint = Checkpoint({"T": {Q0: 15}}, {"T": {Q1: 2}}, EPOCHS)
    gone = stand(checkpoint, {})
    assert [loss.begin for loss in gone.lost] == [2, 15]
    assert all("are gone: the topic was deleted" in text for text in texts(gone.lost))
    assert (gone.begin, gone.kept) == ({}, {"T": {Q0: 15, Q1: 2}})
    after = Checkpoint({}, gone.kept, gone.epochs)
    assert stand(after, {}).lost == []
    back = stand(after, {"T": {Q0: queue(0, 20), Q1: queue(0, 2)}})
    assert (back.begin, back.new, back.lost) == ({"T": {Q0: 15, Q1: 2}}, {}, [])
    other = stand(after, {"T": {Q0: queue(0, 20, 8), Q1: queue(0, 2, 8)}})
    assert (other.begin, other.kept, other.lost) == ({"T": {Q0: 0, Q1: 0}}, {}, [])
    assert other.new == other.begin


def test_s5_a_topic_without_an_epoch_that_is_gone_keeps_no_place() -> None:
    gone = stand(Checkpoint({"T": {Q0: 15}}), {})
    assert (len(gone.lost), gone.kept) == (1, {})


def test_s5_a_topic_that_was_made_again_is_a_loss_of_its_hidden_queues_too() -> None:
    checkpoint = Checkpoint({"T": {Q0: 15}}, {"T": {Q1: 2}}, EPOCHS)
    standing = stand(checkpoint, {"T": {Q0: queue(1, 20, 8)}})
    assert [(loss.queue, loss.begin) for loss in standing.lost] == [(Q1, 2), (Q0, 15)]
    assert (standing.begin, standing.reached, standing.kept) == ({"T": {Q0: 1}}, {}, {})
    assert standing.epochs == {"T": 8}


def test_s5_a_topic_that_is_not_read_loses_nothing_and_keeps_its_place() -> None:
    read = frozenset({"U"})
    checkpoint = Checkpoint({"T": {Q0: 15}, "U": {Q0: 1}}, {}, EPOCHS)
    standing = stand(checkpoint, {"U": {Q0: queue(0, 1, 3)}}, read=read)
    assert (standing.lost, standing.hidden) == ([], [])
    assert standing.kept == {"T": {Q0: 15}}
    assert standing.epochs == {"T": 7, "U": 3}
    # A recovery is reported once: its cut queues are cut, read or not.
    hidden: Bounds = {"T": {Q0: queue(0, 20, cut=9)}}
    cut = stand(checkpoint, {"U": {Q0: queue(0, 1, 3)}}, hidden, read=read)
    assert (cut.lost, cut.hidden, cut.kept, cut.is_cut) == ([], [], {"T": {Q0: 9}}, True)


def test_s5_the_places_of_topics_that_are_gone_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconcile, "KEPT_TOPICS_MAX", 2)
    kept: Positions = {name: {Q0: 1} for name in ("d", "c", "b")}
    epochs = dict.fromkeys("abcd", 5) | EPOCHS
    checkpoint = Checkpoint({"a": {Q0: 1}, "T": {Q0: 1, Q1: 1}}, kept, epochs)
    standing = stand(checkpoint, {"T": {Q0: queue(0, 1)}}, read=frozenset({*"abcd", "T"}))
    assert list(standing.kept) == ["b", "a", "T"]


def test_s5_kept_places_are_in_the_offset_and_in_their_order() -> None:
    start = first_offset({"T": {Q0: 3, Q1: 15}}, "g")
    kept: Positions = {"Z": {Q0: 1}, "T": {Q1: 15}, "A": {A0: 4}}
    end = json.loads(json.dumps(next_offset({"T": {Q0: 4}}, start, "g", {}, kept=kept)))
    assert end["kept"] == {"Z@g": {"0": 1}, "T@g": {"1": 15}, "A@g": {"a": {"0": 4}}}
    assert end["v"] == 2
    assert (positions_of(end), kept_of(end)) == ({"T": {Q0: 4}}, kept)
    assert list(kept_of(end)) == list(kept)
    assert "kept" not in next_offset({"T": {Q0: 4}}, end, "g")


# --- A planned batch ---


def planned(begin: Positions, end: Positions, listed: Bounds) -> tuple[object, object, list[str]]:
    batch = reconcile_batch(begin, end, EPOCHS, listed, listed.keys())
    return batch.begin, batch.end, texts([*batch.lost, *batch.hidden])


@pytest.mark.parametrize(
    ("begin", "there", "left", "lost"),
    [
        (5, queue(0, 30), (5, 20), ""),
        (
            5,
            queue(10, 30),
            (10, 20),
            "offsets [5, 10) of queue 0 of topic 'T' are gone: the queue n",
        ),
        (
            5,
            queue(25, 30),
            (20, 20),
            "offsets [5, 20) of queue 0 of topic 'T' are gone: the queue n",
        ),
        (None, queue(10, 30), (10, 20), ""),
        (5, queue(0, 30, cut=12), (5, 12), "offsets [12, 20) of queue 0 of topic 'T' were taken"),
        (5, queue(0, 30, cut=20), (5, 20), ""),
        (
            5,
            queue(0, 30, epoch=8),
            (20, 20),
            "offsets [5, 20) of queue 0 of topic 'T' are gone: the",
        ),
        (20, queue(0, 30, epoch=8), (20, 20), ""),
    ],
)
def test_s5_a_batch_reads_what_is_left_of_it(
    begin: int | None, there: QueueBounds, left: tuple[int, int], lost: str
) -> None:
    start = {} if begin is None else {"T": {Q0: begin}}
    found = planned(start, {"T": {Q0: 20}}, {"T": {Q0: there}})
    assert found[:2] == ({"T": {Q0: left[0]}}, {"T": {Q0: left[1]}})
    assert [text[: len(lost)] for text in found[2]] == ([lost] if lost else [])


HIDDEN_QUEUE = replace(queue(2, 30), is_hidden=True)


@pytest.mark.parametrize(
    ("listed", "first", "words"),
    [
        ({}, 20, "are gone: the topic was deleted"),
        ({"T": {Q1: queue(0, 9, epoch=8)}}, 20, "are gone: the topic was deleted and made again"),
        ({"T": {}}, 5, "are out of reach"),
        ({"T": {Q1: queue(0, 9)}}, 5, "are out of reach"),
        ({"T": {Q0: HIDDEN_QUEUE}}, 5, "are out of reach"),
    ],
)
def test_s5_a_batch_of_a_queue_that_is_not_listed_names_its_range(
    listed: Bounds, first: int, words: str
) -> None:
    begin, end, lost = planned({"T": {Q0: 5}}, {"T": {Q0: 20}}, listed)
    assert (begin, end) == ({"T": {Q0: first}}, {"T": {Q0: 20}})
    assert lost[0].startswith(f"offsets [5, 20) of queue 0 of topic 'T' {words}")
    assert planned({"T": {Q0: 20}}, {"T": {Q0: 20}}, listed)[2] == []


@pytest.mark.parametrize(
    ("begin", "there", "left", "told"),
    [
        (None, HIDDEN_QUEUE, (2, 20), "[2, 20)"),
        (5, replace(HIDDEN_QUEUE, cut_offset=12), (5, 12), "[5, 12)"),
        (5, replace(HIDDEN_QUEUE, min_offset=9), (9, 20), "[9, 20)"),
        (5, replace(HIDDEN_QUEUE, min_offset=25), (20, 20), ""),
    ],
)
def test_s5_what_is_hidden_of_a_batch_is_what_is_left_of_it(
    begin: int | None, there: QueueBounds, left: tuple[int, int], told: str
) -> None:
    start = {} if begin is None else {"T": {Q0: begin}}
    batch = reconcile_batch(start, {"T": {Q0: 20}}, EPOCHS, {"T": {Q0: there}}, {"T"})
    assert (batch.begin, batch.end) == ({"T": {Q0: left[0]}}, {"T": {Q0: left[1]}})
    assert [text.split(" of ")[0] for text in texts(list(batch.hidden))] == (
        [f"offsets {told}"] if told else []
    )


# --- Messages ---


def test_s5_a_loss_is_an_error_or_a_warning_with_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [taken] = stand(Checkpoint({"T": {Q0: 15}}, {}, EPOCHS), {"T": {Q0: queue(2, 20, cut=5)}}).lost
    told = (
        "offsets [5, 15) of queue 0 of topic 'T' were taken back: a power cut took messages from "
        "the broker that had been read, and what is stored there now has not been read; "
    )
    with pytest.raises(DataLossError) as caught:
        losses.raise_or_log(
            [taken, replace(taken, queue=Q1), replace(taken, queue=Q2)], fail_on_data_loss=True
        )
    assert told.removesuffix("; ") + " (and of 2 more queues); " in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log([taken], fail_on_data_loss=False)
    assert told + "10 messages are gone, and the query goes on at 5" in caplog.text
    losses.raise_or_log([], fail_on_data_loss=True)


def test_s5_losses_of_very_many_queues_are_some_lines_and_their_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    places: Positions = {"T": {BrokerQueue("", number): 5 for number in range(10_000)}}
    listed: Bounds = {"T": dict.fromkeys(places["T"], queue(7, 9))}
    batch = reconcile_batch(places, {"T": dict.fromkeys(places["T"], 9)}, EPOCHS, listed, {"T"})
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log(batch.lost, fail_on_data_loss=False)
    lines = caplog.text.splitlines()
    assert len(lines) == losses.LINES_MAX + 1
    assert "2 messages are passed over" in lines[0]
    assert "9980 more queues have such losses, of 19960 known messages" in lines[-1]


def test_s5_hidden_messages_are_read_later_and_the_error_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed: Bounds = {"T": {Q0: queue(0, 3)}}
    checkpoint = Checkpoint({"T": {Q0: 3, Q1: 2}}, {}, EPOCHS)
    hidden = stand(checkpoint, listed, {"T": {Q1: queue(0, 6)}}).hidden
    with pytest.raises(DataLossError, match=r"offsets \[2, 6\) of queue 1 .*readQueueNums"):
        losses.raise_or_log(hidden, fail_on_data_loss=True)
    with caplog.at_level(logging.WARNING):
        losses.raise_or_log(hidden, fail_on_data_loss=False)
    assert "; 4 messages are read when the topic has its queues again" in caplog.text
