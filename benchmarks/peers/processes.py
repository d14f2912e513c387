"""Processor time of the programs of a line, and of the whole machine, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of processor time, by part."""

    jvm: float = 0.0
    python: float = 0.0
    broker: float = 0.0

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(self.jvm + other.jvm, self.python + other.python, self.broker + other.broker)

    def __sub__(self, other: Cpu) -> Cpu:
        # Spark ends idle workers, whose time is then lost; it belongs to earlier turns.
        return Cpu(
            max(0.0, self.jvm - other.jvm),
            max(0.0, self.python - other.python),
            max(0.0, self.broker - other.broker),
        )


@dataclass(frozen=True, slots=True)
class Programs:
    """Process ids of one side: the client's JVM, if there is one, and the broker."""

    jvm: int | None
    broker: int

    def cpu(self) -> Cpu:
        """Returns the time used so far. Python is this process and the JVM's descendants."""
        broker = _with_descendants(self.broker)
        if self.jvm is None:
            return Cpu(0.0, _own(), broker)
        times = psutil.Process(self.jvm).cpu_times()
        jvm = times.user + times.system
        return Cpu(jvm, _own() + _with_descendants(self.jvm) - jvm, broker)


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """Seconds of processor time of the machine since its start, over all cores."""

    busy: float
    steal: float
    total: float

    @classmethod
    def now(cls) -> MachineTimes:
        """Returns the times so far."""
        times = psutil.cpu_times()
        # The guests' are part of `user` and `nice`.
        total = sum(times) - times.guest - times.guest_nice
        return cls(total - times.idle - times.iowait - times.steal, times.steal, total)

    def __sub__(self, other: MachineTimes) -> MachineTimes:
        return MachineTimes(
            self.busy - other.busy, self.steal - other.steal, self.total - other.total
        )


def used_by(programs: Iterable[Programs]) -> float:
    """Returns the seconds that this process and these programs have used, each counted once."""
    pids = {pid for side in programs for pid in (side.jvm, side.broker) if pid is not None}
    return _own() + sum(map(_with_descendants, pids))


def _own() -> float:
    times = os.times()
    return times.user + times.system


def _with_descendants(pid: int) -> float:
    """Returns the seconds of a process, its descendants, and all that they have waited for."""
    process, seconds = psutil.Process(pid), 0.0
    for one in [process, *process.children(recursive=True)]:
        # One that has ended counts from the next time on, for the process that waited for it.
        with suppress(psutil.NoSuchProcess):
            seconds += sum(one.cpu_times()[:4])
    return seconds
