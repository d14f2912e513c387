"""The judge of histories: it finds each fault, and none in a right history."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.events import (
    AllOrNone,
    Calm,
    Cleaned,
    CleanedLog,
    ExactlyOne,
    Held,
    Lock,
)
from tests.faults.histories.history import FINAL, Delivery, Fault, History, Outcome, body_of, judge
from tests.faults.workers.zygote import TOP

QUEUE = QueueKey("T", 1)


def sent(history: History, name: str, *, acked_at: int | None = None, sender: str = "a") -> bytes:
    """Records a sent message, acknowledged if an offset is given; returns its body."""
    body = body_of(name, 50)
    history.begin(sender, QUEUE, [body])
    if acked_at is not None:
        history.acked([name], QUEUE.queue_id, acked_at)
    return body


def a_good_history() -> History:
    """Returns a right history of acknowledged and unknown messages."""
    history = History()
    bodies = [sent(history, f"m{number}", acked_at=number) for number in range(4)]
    for offset, body in enumerate([*bodies, sent(history, "came")]):
        history.delivered(FINAL, QUEUE, offset, body)
    sent(history, "never came")
    return history


def kinds(history: History) -> list[str]:
    return [fault.kind for fault in judge(history)]


def test_m3_a_history_without_faults_passes(tmp_path: Path) -> None:
    history = a_good_history()
    assert judge(history) == []
    history.check(tmp_path, 0)
    assert list(tmp_path.iterdir()) == []


def lose(history: History) -> None:
    sent(history, "gone", acked_at=9)


def lose_what_was_seen(history: History) -> None:
    history.delivered("early bird", QUEUE, 9, sent(history, "gone"))


def repeat(history: History) -> None:
    history.delivered(FINAL, QUEUE, 9, body_of("came", 50))


def invent(history: History) -> None:
    history.delivered(FINAL, QUEUE, 9, b"from nowhere|")


def keep_refused(history: History) -> None:
    body = sent(history, "refused")
    history.refused(["refused"])
    history.delivered(FINAL, QUEUE, 9, body)


def show_half(history: History) -> None:
    body = sent(history, "half")
    history.sends["half"].outcome = Outcome.HIDDEN
    history.delivered(FINAL, QUEUE, 9, body)


def change_body(history: History) -> None:
    history.delivered(FINAL, QUEUE, 9, sent(history, "changed", acked_at=9)[:-1] + b"!")


def move_offset(history: History) -> None:
    history.delivered(FINAL, QUEUE, 10, sent(history, "elsewhere", acked_at=9))


def move_queue(history: History) -> None:
    history.delivered(FINAL, QueueKey("T", 0), 0, sent(history, "elsewhere"))


def swap_of_two_senders(history: History) -> None:
    first = sent(history, "first")
    history.sends["first"].ended = history.sends["first"].begun
    second = sent(history, "second", sender="b")
    history.delivered(FINAL, QUEUE, 9, second)
    history.delivered(FINAL, QUEUE, 10, first)


def swap_of_one_sender(history: History) -> None:
    first, second = sent(history, "first"), sent(history, "second")
    history.delivered(FINAL, QUEUE, 9, second)
    history.delivered(FINAL, QUEUE, 10, first)


def come_early(history: History) -> None:
    body = sent(history, "delayed", acked_at=9)
    history.sends["delayed"].due_ms = 1000
    history.delivered(FINAL, QUEUE, 9, body, at_ms=999)


def come_late(history: History) -> None:
    body = sent(history, "delayed", acked_at=9)
    history.sends["delayed"].due_ms = 1000
    history.sends["delayed"].punctual = True
    history.events.append(Calm(0, 90_000))
    history.delivered(FINAL, QUEUE, 9, body, at_ms=60_000)


def lock(client: str, from_ms: float, *, granted: bool = True) -> Lock:
    to_ms = from_ms + 60_000 if granted else from_ms
    return Lock("g", *QUEUE, client, granted, from_ms, to_ms)


def lock_twice(history: History) -> None:
    history.events += [lock("a", 0), lock("b", 60_001), lock("a", 60_002)]


def lock_for_nobody(history: History) -> None:
    history.events += [lock("a", 0), lock("b", 59_000, granted=False)]
    history.events.append(lock("b", 60_001, granted=False))


def sleep_on(history: History) -> None:
    body = body_of("awaited", 50)
    history.begin("a", QUEUE, [body])
    history.acked(["awaited"], QUEUE.queue_id, 9, at_ms=100)
    history.delivered(FINAL, QUEUE, 9, body)
    history.events.append(Held(*QUEUE, 9, 0, 30_000))


def tear_a_batch(history: History) -> None:
    sent(history, "half of it")
    history.events.append(AllOrNone(("came", "half of it")))


def end_nowhere(history: History) -> None:
    history.events.append(ExactlyOne(("never came", "came neither")))


def end_twice(history: History) -> None:
    history.events.append(ExactlyOne(("came", "m1")))


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (come_late, "late"),
        (lock_twice, "two owners"),
        (lock_for_nobody, "denied"),
        (sleep_on, "unwoken"),
        (tear_a_batch, "partial"),
        (end_nowhere, "lost"),
        (end_twice, "several"),
        (lose, "lost"),
        (lose_what_was_seen, "lost"),
        (repeat, "duplicate"),
        (invent, "phantom"),
        (keep_refused, "phantom"),
        (show_half, "half"),
        (change_body, "wrong"),
        (move_offset, "moved"),
        (move_queue, "moved"),
        (swap_of_two_senders, "reordered"),
        (swap_of_one_sender, "reordered"),
        (come_early, "early"),
    ],
)
def test_m3_each_kind_of_fault_is_found(break_it: Callable[[History], None], kind: str) -> None:
    history = a_good_history()
    break_it(history)
    assert set(kinds(history)) == {kind}


def test_m3_a_failed_history_is_kept_and_can_be_judged_again(tmp_path: Path) -> None:
    history = a_good_history()
    lose(history)
    history.events += [Calm(1, 2), ExactlyOne(("came", "m77"))]
    with pytest.raises(AssertionError, match=r"seed 7: 1 lost") as failure:
        history.check(tmp_path, 7)
    path = tmp_path / "history.jsonl"
    assert str(path) in str(failure.value)
    assert judge(History.load(path)) == judge(history)
    command = [sys.executable, "-m", "tests.faults.histories.history", str(path)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "lost: gone was acknowledged in T/1 at 9, and is not there",
        f"{path}: 1 faults",
    ]


def test_m3_a_good_history_file_passes(tmp_path: Path) -> None:
    path = tmp_path / "good.jsonl"
    a_good_history().save(path)
    command = [sys.executable, "-m", "tests.faults.histories.history", str(path)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{path}: 0 faults\n")


def test_m3_what_was_cleaned_is_not_lost_and_a_copy_may_come_as_often_as_it_was_sent() -> None:
    history = a_good_history()
    body = sent(history, "cleaned", acked_at=5)
    history.delivered("reader", QUEUE, 5, body)
    history.events.append(Cleaned(*QUEUE, 6))
    sent(history, "cleaned with its log", acked_at=6)
    body_hash = history.sends["cleaned with its log"].body_hash
    gone = Delivery("reader", *QUEUE, 6, "cleaned with its log", body_hash, log_end=500)
    history.seen(gone)
    assert kinds(history) == ["lost", "lost"]
    history.events.append(CleanedLog(499))
    assert kinds(history) == ["lost", "lost"]
    history.events.append(CleanedLog(500))
    for _ in range(2):
        history.begin_copy("m0", "again", QUEUE)
    for offset in (20, 21):
        history.seen(Delivery(FINAL, *QUEUE, offset, "again", history.sends["m0"].body_hash))
    assert judge(history) == []


def test_m3_faults_of_a_kind_stand_together() -> None:
    assert sorted([Fault("lost", "b"), Fault("early", "z"), Fault("lost", "a")]) == [
        Fault("early", "z"),
        Fault("lost", "a"),
        Fault("lost", "b"),
    ]
