"""Histories of workers' transactions: the judge finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.histories.events import Half, Stage
from tests.faults.histories.history import History, body_of, hash_of, judge
from tests.faults.histories.transaction_recorder import TransactionRecorder
from tests.faults.workers.transaction_programs import BODY_BYTES

# By the words of their producers: each transaction's progress when the broker dies.
WORDS = {
    "c-begun": ["preparing"],
    "c-open": ["preparing", "prepared"],
    "c-asked": ["preparing", "prepared", "ending"],
    "c-came": ["preparing", "prepared", "ending"],
    "c-ended": ["preparing", "prepared", "ending", "ended"],
    "r-open": ["preparing", "prepared"],
    "r-asked": ["preparing", "prepared", "ending"],
    "r-went": ["preparing", "prepared", "ending"],
    "r-ended": ["preparing", "prepared", "ending", "ended"],
}


@dataclass
class Start:
    """The findings of a start: right at first, for a test to make wrong."""

    shown: list[str] = field(default_factory=lambda: ["c-came", "c-ended"])
    asked: list[str] = field(default_factory=lambda: ["c-open", "c-asked", "r-open", "r-asked"])
    body_bytes: int = BODY_BYTES

    def told_to(self, recorder: TransactionRecorder) -> None:
        hashes = [hash_of(body_of(name, self.body_bytes)) for name in self.shown]
        recorder.look(zip(range(len(hashes)), self.shown, hashes, strict=True), self.asked)


def used() -> TransactionRecorder:
    """Returns a recorder with transactions of all kinds."""
    recorder = TransactionRecorder()
    for name, words in WORDS.items():
        for word in words:
            recorder.take([word, name])
    return recorder


def kinds(recorder: TransactionRecorder) -> set[str]:
    return {fault.kind for fault in judge(recorder.history)}


def after_answers() -> Start:
    return Start(shown=["c-came", "c-ended", "c-open", "c-asked"], asked=[])


def test_t1_a_start_that_finds_what_may_be_there_is_right(tmp_path: Path) -> None:
    recorder = used()
    Start().told_to(recorder)
    assert kinds(recorder) == set()
    recorder.settle()
    after_answers().told_to(recorder)
    recorder.history.check(tmp_path, 0)
    assert recorder.is_worth_it


def lose_a_commit(start: Start) -> None:
    start.shown.remove("c-ended")


def lose_a_half_message(start: Start) -> None:
    start.asked.remove("r-open")


def lose_what_was_being_committed(start: Start) -> None:
    start.asked.remove("c-asked")


def commit_twice(start: Start) -> None:
    start.shown.append("c-ended")


def commit_and_ask(start: Start) -> None:
    start.asked.append("c-came")


def ask_twice(start: Start) -> None:
    start.asked.append("c-open")


def ask_after_a_commit(start: Start) -> None:
    start.shown.remove("c-ended")
    start.asked.append("c-ended")


def ask_after_a_rollback(start: Start) -> None:
    start.asked.append("r-ended")


def show_an_open_one(start: Start) -> None:
    start.asked.remove("c-open")
    start.shown.append("c-open")


def show_one_that_was_begun(start: Start) -> None:
    start.shown.append("c-begun")


def show_a_rollback(start: Start) -> None:
    start.shown.append("r-ended")


def show_what_nobody_sent(start: Start) -> None:
    start.shown.append("c-other")


def ask_after_what_nobody_sent(start: Start) -> None:
    start.asked.append("c-other")


def change_bodies(start: Start) -> None:
    start.body_bytes += 1


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose_a_commit, {"lost"}),
        (lose_a_half_message, {"lost"}),
        (lose_what_was_being_committed, {"lost"}),
        (commit_twice, {"duplicate", "several"}),
        (commit_and_ask, {"several"}),
        (ask_twice, {"several"}),
        (ask_after_a_commit, {"lost", "reopened"}),
        (ask_after_a_rollback, {"reopened"}),
        (show_an_open_one, {"half"}),
        (show_one_that_was_begun, {"half"}),
        (show_a_rollback, {"half"}),
        (show_what_nobody_sent, {"phantom"}),
        (ask_after_what_nobody_sent, {"phantom"}),
        (change_bodies, {"wrong"}),
    ],
)
def test_t1_a_planted_fault_is_found_and_again_in_the_file(
    plant: Callable[[Start], None], found: set[str], tmp_path: Path
) -> None:
    recorder, start = used(), Start()
    plant(start)
    start.told_to(recorder)
    assert kinds(recorder) == found
    with pytest.raises(AssertionError, match="judge again"):
        recorder.history.check(tmp_path, 0)
    assert judge(History.load(tmp_path / "history.jsonl")) == judge(recorder.history)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda start: start.shown.remove("c-open"), "lost"),
        (lambda start: start.shown.append("r-open"), "half"),
        (lambda start: start.shown.append("c-begun"), "half"),
        (lambda start: start.asked.append("c-open"), "several"),
        (lambda start: start.asked.append("r-asked"), "reopened"),
    ],
)
def test_t1_what_was_answered_is_over(plant: Callable[[Start], None], found: str) -> None:
    recorder, start = used(), after_answers()
    Start().told_to(recorder)
    recorder.settle()
    plant(start)
    start.told_to(recorder)
    assert kinds(recorder) == {found}


@pytest.mark.parametrize(
    ("place", "words", "stage"),
    [
        ("prepare: before half", ["preparing"], Stage.GONE),
        ("prepare: unanswered", ["preparing"], Stage.PREPARED),
        ("commit: before final", ["preparing", "prepared", "ending"], Stage.PREPARED),
        ("commit: after final", ["preparing", "prepared", "ending"], Stage.COMMITTED),
        ("check: asked", ["preparing", "prepared"], Stage.PREPARED),
    ],
)
def test_t1_the_place_of_a_kill_tells_of_the_transaction_that_it_meets(
    place: str, words: list[str], stage: Stage
) -> None:
    recorder = TransactionRecorder()
    for word in words:
        recorder.take([word, "c-last"])
    recorder.take(["at", place])
    assert recorder.history.events == [Half("c-last", stage)]
