"""Row T1: killed at each step, each half message is committed once, invisible, or still checked."""

from __future__ import annotations

import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.faults import transaction_programs as programs
from tests.faults.zygote import Event, Zygote

KILLS_QUICK, KILLS_TORTURE = 20, 200
# A step is met once or more before the kill, so that it falls among transactions of all kinds.
TIMES_MAX = 3
SURVEYED: Event = ["surveyed"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


class Fate(Enum):
    """What becomes of a half message: how often it shows, and how often it is asked after."""

    COMMITTED_ONCE = (1, 0)
    INVISIBLE = (0, 0)
    STILL_CHECKED = (0, 1)


# What the kill leaves of the transaction that it meets.
PREPARING = {
    "prepare: before half": Fate.INVISIBLE,
    "prepare: after half": Fate.STILL_CHECKED,
    "prepare: unanswered": Fate.STILL_CHECKED,
}
DECIDING = {
    "commit: before final": Fate.STILL_CHECKED,
    "commit: after final": Fate.COMMITTED_ONCE,
    "commit: after op": Fate.COMMITTED_ONCE,
    "commit: unanswered": Fate.COMMITTED_ONCE,
    "rollback: before op": Fate.STILL_CHECKED,
    "rollback: after op": Fate.INVISIBLE,
    "rollback: unanswered": Fate.INVISIBLE,
}
CHECKING = {
    f"check: {step}": Fate.STILL_CHECKED
    for step in ("before half", "after half", "after op", "asked")
}
# A second kill, at the start that notes a commit whose op message the first one has taken.
NOTING = {f"start: {step} op": Fate.COMMITTED_ONCE for step in ("before", "after")}
PLACES = PREPARING | DECIDING | CHECKING | NOTING


@dataclass
class Known:
    """What a producer knows of its transactions, from its words until it was killed at `place`."""

    place: str = ""
    preparing: set[str] = field(default_factory=set)
    prepared: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    last: str = ""

    def take(self, event: Event) -> None:
        """Learn from one event."""
        word, *rest = event
        if word in ("preparing", "prepared", "ending", "ended"):
            (name,) = rest
            getattr(self, word).add(name)
            self.last = name

    def fates(self, name: str) -> set[Fate]:
        """What may have become of a transaction."""
        if name not in self.prepared:
            return {Fate.INVISIBLE, Fate.STILL_CHECKED}
        if name not in self.ending:
            return {Fate.STILL_CHECKED}
        return {decided(name)} if name in self.ended else {decided(name), Fate.STILL_CHECKED}


def decided(name: str) -> Fate:
    """What its producer wants."""
    return Fate.COMMITTED_ONCE if name.startswith("c") else Fate.INVISIBLE


@dataclass
class Store:
    """One store over kills and starts. `settled` are the messages that readers must see."""

    zygote: Zygote
    folder: Path
    plan: random.Random
    known: Known = field(default_factory=Known)
    settled: set[str] = field(default_factory=set)
    starts: int = 0

    def kill_at(self, place: str) -> None:
        """Start, look at what the kill before has left, and use transactions up to a place."""
        events = self._start(place, times=1 if place in NOTING else self.plan.randint(1, TIMES_MAX))
        if SURVEYED in events:
            surveyed = events.index(SURVEYED)
            self._look(events[:surveyed])
            self.known = Known(place)
            for event in events[surveyed:]:
                self.known.take(event)

    def look(self) -> None:
        """Start, and look at what the last kill has left."""
        self._look(self._start("", times=0))

    def _start(self, place: str, times: int) -> list[Event]:
        """All that a worker says, whose end is checked."""
        self.starts += 1
        worker = self.zygote.start(
            programs.transact,
            folder=str(self.folder),
            flush=self.plan.choice(list(FlushDiskType)).value,
            seed=self.plan.getrandbits(32),
            prefix=f"{self.starts}-",
            place=place,
            times=times,
        )
        events = list(worker.events())
        status = worker.wait()
        assert events[-1] == (["at", place] if place else SURVEYED), events[-1]
        assert status == (-signal.SIGKILL if place else 0)
        return events

    def _look(self, events: list[Event]) -> None:
        """Compare what a start has found, and how that ended, with what is known."""
        known = self.known
        before, after = (Counter[str](event[1]) for event in events if event[0] == "shown")
        answered = events.index(["answered"])
        asked = Counter(event[1] for event in events[:answered] if event[0] == "asked")
        asked_again = [event[1] for event in events[answered:] if event[0] == "asked"]
        fates = {name: Fate((before[name], asked[name])) for name in known.preparing}
        assert [name for name, fate in fates.items() if fate not in known.fates(name)] == []
        if known.place in PLACES and known.place not in CHECKING:
            assert fates[known.last] is PLACES[known.place]
        committed = {name for name, fate in fates.items() if fate is Fate.COMMITTED_ONCE}
        assert before == Counter(self.settled | committed)
        assert asked.keys() <= known.preparing
        self.settled |= committed | {name for name in asked if decided(name) is Fate.COMMITTED_ONCE}
        assert (after, asked_again) == (Counter(self.settled), [])


@pytest.mark.parametrize("kills", [KILLS_QUICK, pytest.param(KILLS_TORTURE, marks=torture)])
@pytest.mark.parametrize("place", PLACES)
def test_t1_a_kill_leaves_each_half_message_committed_once_invisible_or_still_checked(
    zygote: Zygote, ram_folder: Path, seed: int, place: str, kills: int
) -> None:
    for first in range(0, kills, KILLS_QUICK):
        store = Store(zygote, ram_folder / str(first), random.Random(seed + first))
        for _ in range(KILLS_QUICK):
            if place in NOTING:
                store.kill_at("commit: after final")
            store.kill_at(place)
        store.look()
        assert store.settled, "next to nothing was committed"
