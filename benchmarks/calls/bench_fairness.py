"""Waits of a small send and a small pull beside bulk work, against waits alone, by protocol.

The probe sends single messages on one connection and pulls single messages on another. Each call
follows the answer of the one before, after a pause. Bulk work of each kind, and all kinds together,
run in separate processes, with one store for each phase. Rounds alone and beside bulk alternate;
each round starts with a synced disk. The figure is the median of the rounds' differences: another
program's burst on disk or processor spoils only one round. `fairness:remoting` runs one protocol.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Result
from benchmarks.protocols.content import SMALL_BODY_BYTES, SMALL_TOPIC, fill, prepare
from benchmarks.protocols.interface import Side
from benchmarks.protocols.table import SIDES
from rocketpy_broker import LocalBroker
from rocketpy_broker.store.config import FlushDiskType

PAUSE_SECONDS, WARM_SECONDS, SECONDS = 0.01, 0.5, 3.0
ROUNDS = 3
GOAL_MS = 50


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of small calls, in ms."""

    sends: list[float] = field(default_factory=list)
    pulls: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Round:
    """Waits alone, then beside bulk."""

    alone: Waits
    beside: Waits

    def differences(self, what: str, share: float) -> tuple[float, float, float]:
        """Returns a percentile alone, beside bulk, and the difference."""
        alone = percentile(getattr(self.alone, what), share)
        beside = percentile(getattr(self.beside, what), share)
        return alone, beside, beside - alone


def percentile(waits: Sequence[float], share: float) -> float:
    """Returns the value at that share of the sorted waits."""
    return sorted(waits)[int(len(waits) * share)]


async def probe(side: Side, address: str, seconds: float) -> Waits:
    """Returns the waits of small sends and small pulls during `seconds`."""
    waits = Waits()
    end = time.perf_counter() + seconds
    async with side.connect(address) as sender, side.connect(address) as puller:

        async def send() -> None:
            await sender.send(SMALL_TOPIC, 0, bytes(SMALL_BODY_BYTES))

        await asyncio.gather(
            _repeat(send, waits.sends, end), _repeat(puller.pull, waits.pulls, end)
        )
    return waits


async def _repeat(call: Callable[[], Awaitable[None]], waits: list[float], end: float) -> None:
    while time.perf_counter() < end:
        begin = time.perf_counter()
        await call()
        waits.append((time.perf_counter() - begin) * 1000)
        await asyncio.sleep(PAUSE_SECONDS)


@contextmanager
def load(protocol: str, kind: str, address: str, done: dict[str, int]) -> Iterator[None]:
    """Runs bulk of a kind until the block ends; adds its amount to `done`."""
    command = [sys.executable, "-m", "benchmarks.calls.fairness_load", protocol, kind, address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError(f"bulk {kind!r} of {protocol} has failed")
            yield
            process.stdin.write("\n")
            process.stdin.flush()
            done[kind] = done.get(kind, 0) + int(process.stdout.readline() or 0)
        finally:
            process.kill()


@dataclass
class Phase:
    """Bulk of some kinds at one broker; `done` counts its calls."""

    protocol: str
    kinds: Sequence[str]
    broker: LocalBroker
    done: dict[str, int] = field(default_factory=dict)

    @property
    def side(self) -> Side:
        """The protocol's clients."""
        return SIDES[self.protocol]

    def probe(self, seconds: float) -> Waits:
        """Returns the waits of small calls during `seconds`."""
        return asyncio.run(probe(self.side, self.side.address(self.broker), seconds))

    def round(self, seconds: float) -> Round:
        """Returns the waits alone, then beside all kinds of bulk, from a synced disk."""
        os.sync()
        alone = self.probe(seconds / 2)
        with ExitStack() as stack:
            for kind in self.kinds:
                address_of = self.side.bulk[kind].address or self.side.address
                address = address_of(self.broker)
                stack.enter_context(load(self.protocol, kind, address, self.done))
            beside = self.probe(seconds)
        return Round(alone, beside)


def run_phase(
    protocol: str,
    name: str,
    kinds: Sequence[str],
    flush: FlushDiskType = FlushDiskType.SYNC_FLUSH,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
) -> list[Result]:
    """Returns the results of one broker with its own store."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = Path(folder) / "store"
        prepare(store)
        with LocalBroker(store, flush=flush, commit_log_segment_bytes=1 << 28) as broker:
            fill(broker)
            phase = Phase(protocol, kinds, broker)
            phase.probe(WARM_SECONDS)
            found = [phase.round(seconds) for _ in range(rounds)]
    return [
        result(f"{protocol}: small {what} beside {name}", what, found, phase.done)
        for what in ("sends", "pulls")
    ]


def result(name: str, what: str, rounds: Sequence[Round], done: dict[str, int]) -> Result:
    """Returns the median over the rounds of the 99th percentile's difference."""

    def median_of(share: float) -> list[float]:
        figures = zip(*(each.differences(what, share) for each in rounds), strict=True)
        return [statistics.median(figure) for figure in figures]

    p50, p99 = median_of(0.5), median_of(0.99)
    longest = max(max(getattr(each.beside, what)) for each in rounds)
    bulk = ", ".join(f"{count:,} {kind}" for kind, count in done.items())
    by_round = ", ".join(f"{each.differences(what, 0.99)[2]:.0f}" for each in rounds)
    detail = (
        f"p50 {p50[0]:.1f} → {p50[1]:.1f} ms, p99 {p99[0]:.1f} → {p99[1]:.1f} ms, by round "
        f"{by_round}, longest {longest:.0f} ms; meanwhile {bulk}"
    )
    return Result(f"{name}, p99", p99[2], "ms", GOAL_MS, True, detail)


def run(protocol: str = "") -> Iterator[Result]:
    """Yields the results of each kind of bulk, and of all together, of one protocol or of all."""
    for each in [protocol] if protocol else SIDES:
        for name, kinds in SIDES[each].phases.items():
            yield from run_phase(each, name, kinds)
