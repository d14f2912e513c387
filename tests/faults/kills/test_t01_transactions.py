"""Kills at each step of transactions.

Each half message is committed once, invisible, or still checked.
"""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.faults.histories.transaction_recorder import KILLED_AT, TransactionRecorder
from tests.faults.workers import transaction_programs as programs
from tests.faults.workers.zygote import Event, Zygote

KILLS_QUICK, KILLS_TORTURE = 8, 200
KILLS_PER_STORE = 20
# A step is met once or more before the kill, so that transactions of all kinds are there.
TIMES_MAX = 3
SURVEYED: Event = ["surveyed"]
CHECKING = [f"check: {step}" for step in ("before half", "after half", "after op", "asked")]
# A second kill, at the start that records a commit without its op message after a first kill.
NOTING = [f"start: {step} op" for step in ("before", "after")]
NOTED = "commit: after final"
PLACES = [*KILLED_AT, *CHECKING, *NOTING]

pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


@dataclass
class Store:
    """One store over kills and starts."""

    zygote: Zygote
    folder: Path
    # The folder for histories that fail.
    kept: Path
    seed: int
    recorder: TransactionRecorder = field(default_factory=TransactionRecorder)
    starts: int = 0

    def __post_init__(self) -> None:
        self._plan = random.Random(self.seed)

    def kill_at(self, place: str) -> None:
        """Starts, checks the result of the last kill, and uses transactions up to a place."""
        events = self._start(
            place, times=1 if place in NOTING else self._plan.randint(1, TIMES_MAX)
        )
        if SURVEYED in events:
            surveyed = events.index(SURVEYED)
            self._judge(events[:surveyed])
            for event in events[surveyed:]:
                self.recorder.take(event)

    def look(self) -> None:
        """Starts, and checks the result of the last kill."""
        self._judge(self._start("", times=0))

    def _start(self, place: str, times: int) -> list[Event]:
        """Runs a worker; returns all its words after a check of its end."""
        self.starts += 1
        worker = self.zygote.start(
            programs.transact,
            folder=str(self.folder),
            flush=self._plan.choice(list(FlushDiskType)).value,
            seed=self._plan.getrandbits(32),
            prefix=f"{self.starts}-",
            place=place,
            times=times,
        )
        events = list(worker.events())
        status = worker.wait()
        assert events[-1] == (["at", place] if place else SURVEYED), events[-1]
        assert status == (-signal.SIGKILL if place else 0)
        return events

    def _judge(self, events: list[Event]) -> None:
        """Judges a start's messages and check-backs, and how the transactions ended."""
        recorder, answered = self.recorder, events.index(["answered"])
        before, after = (event[1] for event in events if event[0] == "shown")
        recorder.look(before, [event[1] for event in events[:answered] if event[0] == "asked"])
        recorder.history.check(self.kept, self.seed)
        recorder.settle()
        recorder.look(after, [event[1] for event in events[answered:] if event[0] == "asked"])
        recorder.history.check(self.kept, self.seed)


@pytest.mark.parametrize("kills", [KILLS_QUICK, pytest.param(KILLS_TORTURE, marks=torture)])
@pytest.mark.parametrize("place", PLACES)
def test_t1_a_kill_leaves_each_half_message_committed_once_invisible_or_still_checked(
    zygote: Zygote, ram_folder: Path, tmp_path: Path, seed: int, place: str, kills: int
) -> None:
    for first in range(0, kills, KILLS_PER_STORE):
        store = Store(zygote, ram_folder / str(first), tmp_path, seed + first)
        for number in range(KILLS_PER_STORE):
            if number >= kills and store.recorder.is_worth_it:
                break
            if place in NOTING:
                store.kill_at(NOTED)
            store.kill_at(place)
        store.look()
        assert store.recorder.is_worth_it, "next to nothing was committed"
