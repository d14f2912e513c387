"""Measurement by ratio: ours and its baseline alternate; the median ratio counts.

Machines are noisy and differ; ratios do much less.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Result:
    """One figure. `goal` is a lower bound, or an upper one if `at_most` is set."""

    name: str
    value: float
    unit: str
    goal: float
    at_most: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        """True if the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def to_json(self) -> dict[str, object]:
        """Returns all fields, and whether the goal is met."""
        return {**asdict(self), "reached": self.reached}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of each round, ours and the baseline's, for the same amount of work."""

    ours: list[float]
    baseline: list[float]

    @property
    def ratio(self) -> float:
        """Median over rounds of our speed as a share of the baseline's."""
        pairs = zip(self.ours, self.baseline, strict=True)
        return statistics.median(baseline / ours for ours, baseline in pairs)

    @property
    def seconds(self) -> float:
        """Median of ours."""
        return statistics.median(self.ours)

    @property
    def baseline_seconds(self) -> float:
        """Median of the baseline."""
        return statistics.median(self.baseline)


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the wall time of one call."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(
    ours: Callable[[], object],
    baseline: Callable[[], object],
    rounds: int = ROUNDS,
    after_round: Callable[[], object] = lambda: None,
) -> Comparison:
    """Runs both in turns, after one unmeasured turn that warms caches and imports."""
    ours()
    baseline()
    after_round()
    mine, theirs = [], []
    for _ in range(rounds):
        theirs.append(seconds_of(baseline))
        mine.append(seconds_of(ours))
        after_round()
    return Comparison(mine, theirs)


def median_seconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Returns the median wall time, after one unmeasured call."""
    work()
    return statistics.median(seconds_of(work) for _ in range(rounds))
