"""Simulations of a master, its slave and the link between them, by seeds.

`python -m tests.faults.simulation.pair SEED` runs a failed seed again and prints all its steps.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.simulation.pair.run import PairRunError, simulate
from tests.faults.workers.zygote import TOP

SEEDS_TORTURE, SEEDS_A_TEST = 20_000, 2
# The first two notice each planted fault of a pair.
SEEDS_QUICK = range(12, 16)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silences the brokers' logs: crashes cause thousands of lines."""
    logger = logging.getLogger("rocketpy_broker")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def run(seeds: range) -> Counter[str]:
    """Runs seeds up to the first that fails; returns the counts of the words of their steps."""
    words: Counter[str] = Counter()
    for seed in seeds:
        again = f"run again: python -m tests.faults.simulation.pair {seed}\n"
        try:
            simulation = simulate(seed)
        except PairRunError as error:
            raise AssertionError(f"seed {seed} failed: {error}\n{again}") from error.__cause__
        assert not simulation.faults, "\n".join([*simulation.faults[:20], again])
        words.update(word for line in simulation.sides.trace for word in line.split(" "))
    return words


@pytest.mark.parametrize("first", SEEDS_QUICK[::SEEDS_A_TEST])
def test_m3_no_seed_of_a_pair_breaks_a_promise(first: int) -> None:
    run(range(first, first + SEEDS_A_TEST))


@pytest.mark.torture
@pytest.mark.timeout(24 * 3600)
def test_m3_many_seeds_of_pairs_try_everything_and_break_no_promise() -> None:
    words = run(range(SEEDS_TORTURE))
    wanted = {
        *("SEND_OK", "unconfirmed", "crash", "kill", "power", "stops", "cuts", "slows", "freezes"),
        *("jump", "fills", "promoted", "aligned", "thrown", "created", "deleted"),
    }
    assert wanted <= words.keys(), wanted - words.keys()


def test_m3_a_seed_of_a_pair_is_the_same_run_each_time() -> None:
    """Asserts repeatable runs, also with sets of texts in another order."""
    traces = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.simulation.pair", "3", "7"],
            cwd=TOP,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        traces.append(done.stdout.splitlines())
    first, second = traces
    assert len(first) > 20
    assert first == second
