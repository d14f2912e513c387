"""Simulations of all services with a virtual clock and a simulated disk, by seeds.

`python -m tests.faults.simulation SEED` runs a failed seed again and prints all its steps.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.simulation.machine import HOUR_MS
from tests.faults.simulation.run import simulate
from tests.faults.workers.zygote import TOP

SEEDS_QUICK, SEEDS_TORTURE, SEEDS_A_TEST = 120, 100_000, 10
# Together these try everything.
SEEDS_LAST = 50


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silences the brokers' logs: crashes cause thousands of lines."""
    logger = logging.getLogger("rocketpy_broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def run(seeds: range, folder: Path) -> Counter[str]:
    """Runs seeds up to the first that fails; returns the counts of the steps' first words."""
    words: Counter[str] = Counter()
    for seed in seeds:
        again = f"run again: python -m tests.faults.simulation {seed}\n"
        try:
            simulation = simulate(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} failed: {error!r}\n{again}") from error
        assert simulation.machine.clock.monotonic_ms() >= HOUR_MS
        simulation.history.check(folder, seed, again)
        words.update(word for line in simulation.machine.trace for word in line.split(" ")[1:2])
    return words


@pytest.mark.parametrize("first", range(0, SEEDS_QUICK - SEEDS_LAST, SEEDS_A_TEST))
def test_m2_no_seed_breaks_a_promise(first: int, tmp_path: Path) -> None:
    run(range(first, first + SEEDS_A_TEST), tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(24 * 3600)
def test_m2_no_seed_of_very_many_breaks_a_promise(tmp_path: Path) -> None:
    run(range(SEEDS_QUICK, SEEDS_TORTURE), tmp_path)


def test_m2_a_seed_is_the_same_life_each_time() -> None:
    """Asserts repeatable runs, also with sets of texts in another order."""
    seeds = ["3", "10", "20"]
    traces = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "tests.faults.simulation", *seeds]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            command, cwd=TOP, env=environment, capture_output=True, text=True, check=True
        )
        traces.append(done.stdout.splitlines())
    first, second = traces
    assert len(first) > 50
    assert first == second


@pytest.mark.slow
def test_m2_the_last_seeds_try_everything_and_break_no_promise(tmp_path: Path) -> None:
    """Asserts that the seeds cover all clients' calls and machines' faults, mostly with answers."""
    words = run(range(SEEDS_QUICK - SEEDS_LAST, SEEDS_QUICK), tmp_path)
    wanted = {
        *("acked", "prepared", "ended", "asked", "recalled", "sent", "read", "lock", "heartbeat"),
        *("pull", "cleaned", "crash", "jump", "stopped", "cancels", "batch", "puts"),
    }
    assert wanted <= words.keys(), wanted - words.keys()
