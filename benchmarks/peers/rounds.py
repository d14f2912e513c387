"""Rounds of a line: turns of all sides alternate, and a round that warms up is left out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.peers.processes import Cpu, MachineTimes, Programs, used_by

# A run on a machine with more is called busy: the load of the minute before it, and the shares of
# the machine's processor time in the rounds of a line.
LOAD_MAX, ELSEWHERE_PERCENT_MAX, STEAL_PERCENT_MAX = 0.5, 10.0, 2.0


class Done(NamedTuple):
    """The work of a turn: its rows, and the seconds that each cost."""

    rows: int
    seconds: float


# Takes the least seconds of a turn.
Turn = Callable[[float], Done]


class Unit(NamedTuple):
    """A unit of a figure, made of the seconds that a row costs."""

    name: str
    of: Callable[[float], float]


ROWS = Unit("k rows/s", lambda seconds: 0.001 / seconds)
MS = Unit("ms", lambda seconds: seconds * 1000)
# The cost is processor time, and a row is a second.
SHARE = Unit("% of a core", lambda seconds: seconds * 100)


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison; `tuned` is the peer with options of its own.

    A ratio above 1 favours us, in every unit. `goal` is its lower bound.
    """

    name: str
    ours: Turn
    theirs: Turn
    # By side; the peer has the same ones with options.
    programs: Mapping[str, Programs]
    goal: float
    tuned: Turn | None = None
    unit: Unit = ROWS
    peer: str = "Kafka"

    @property
    def sides(self) -> dict[str, tuple[Turn, Programs]]:
        """The turn of each side and the programs that do it."""
        ours, theirs = self.programs["ours"], self.programs["theirs"]
        sides = {"ours": (self.ours, ours), "theirs": (self.theirs, theirs)}
        return sides if self.tuned is None else {**sides, "tuned": (self.tuned, theirs)}


@dataclass(slots=True)
class Turns:
    """The turns of one side together."""

    seconds: list[float] = field(default_factory=list)
    rows: int = 0
    cpu: Cpu = field(default_factory=Cpu)

    def take(self, turn: Turn, programs: Programs, seconds_min: float) -> None:
        """Runs a turn and adds it."""
        before = programs.cpu()
        done = turn(seconds_min)
        self.cpu += programs.cpu() - before
        self.seconds.append(done.seconds)
        self.rows += done.rows

    def figures(self, line: Line, ours: Turns) -> dict[str, Any]:
        """Returns the median, how much dearer than ours by round, and microseconds a row."""
        value = line.unit.of(statistics.median(self.seconds))
        pairs = zip(self.seconds, ours.seconds, strict=True)
        ratios = [theirs / mine for theirs, mine in pairs]
        ratio = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        parts = asdict(self.cpu).items() if line.unit is ROWS else ()
        cpu_us = {name: seconds / self.rows * 1e6 for name, seconds in parts}
        return {"value": value, "ratio": ratio, "cpu_us": cpu_us}


def repeated(job: Callable[[], object], rows: int) -> Turn:
    """Returns a turn that runs a job of `rows` rows once and until its time is over."""

    def turn(seconds_min: float) -> Done:
        count, took, began = 0, 0.0, time.perf_counter()
        while not count or took < seconds_min:
            job()
            count += rows
            took = time.perf_counter() - began
        return Done(count, took / count)

    return turn


def measure(line: Line, rounds: int, seconds_min: float) -> dict[str, Any]:
    """Returns the figures of a line after `rounds` rounds of turns of `seconds_min` and more."""
    turns: dict[str, Turns] = {}
    for number in range(rounds + 1):
        if number <= 1:  # The round before has warmed up.
            turns = {side: Turns() for side in line.sides}
            before, used_before = MachineTimes.now(), used_by(line.programs.values())
        for side, (turn, programs) in line.sides.items():
            turns[side].take(turn, programs, seconds_min)
    times = MachineTimes.now() - before
    used = used_by(line.programs.values()) - used_before
    return {
        "name": line.name,
        "peer": line.peer,
        "unit": line.unit.name,
        "goal": line.goal,
        **{side: turns[side].figures(line, turns["ours"]) for side in turns},
        # Shares of the machine's processor time.
        "elsewhere_percent": max(0.0, times.busy - used) / times.total * 100,
        "steal_percent": times.steal / times.total * 100,
    }
