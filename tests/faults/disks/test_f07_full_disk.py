"""A disk that is filled and freed repeatedly under a running store."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks.small_disk import mounted_disk
from tests.faults.histories.recorder import Recorder
from tests.faults.workers import disk_programs
from tests.faults.workers.store_use import SMALL_SIZES
from tests.faults.workers.zygote import Zygote

ROUNDS_QUICK = 50
ROUNDS_TORTURE = 500
# The rounds of one store, which takes ever more of the disk.
ROUNDS_PER_STORE = 25
DISK_BYTES = 64 << 20
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yields a disk in memory that is soon full."""
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


@pytest.mark.parametrize("rounds", [ROUNDS_QUICK, pytest.param(ROUNDS_TORTURE, marks=torture)])
def test_f7_a_full_disk_is_an_answer_and_nothing_is_lost(
    zygote: Zygote, small_disk: Path, tmp_path: Path, seed: int, rounds: int
) -> None:
    plan = random.Random(seed)
    for number in range(rounds // ROUNDS_PER_STORE):
        folder = small_disk / f"store{number}"
        _fill_and_free(zygote, folder, tmp_path, plan.getrandbits(32))
        shutil.rmtree(folder)


def _fill_and_free(zygote: Zygote, folder: Path, tmp_path: Path, seed: int) -> None:
    recorder = Recorder()
    worker = zygote.start(
        disk_programs.fill_and_free,
        folder=str(folder),
        ballast=str(folder.parent / "ballast"),
        seed=seed,
        rounds=ROUNDS_PER_STORE,
    )
    try:
        recorder.take(worker.events())
    finally:
        worker.kill()
        status = worker.wait()
    assert status == 0
    recorder.history.check(tmp_path, seed)
    said = [event[0] for event in recorder.others]
    assert said.count("round") == ROUNDS_PER_STORE
    assert said.count("refused") > ROUNDS_PER_STORE
    assert said[-1] == "closed"
    recorder.history.deliveries.clear()
    recorder.read_all(zygote, folder, SMALL_SIZES)
    recorder.history.check(tmp_path, seed)
