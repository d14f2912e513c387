"""Row F1: kill -9 at random moments under load; nothing acknowledged is ever lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketpy_broker.store.flush import FlushDiskType
from tests.faults.recording import Recorder
from tests.faults.zygote import Zygote

KILLS_QUICK = 100
KILLS_TORTURE = 2_000
# A store is given up after so many kills, for every reading of all of it takes longer.
KILLS_PER_STORE = 50
LOAD_SECONDS_MAX = 0.06

torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@pytest.mark.parametrize("kills", [KILLS_QUICK, pytest.param(KILLS_TORTURE, marks=torture)])
def test_f1_a_store_killed_at_random_moments_keeps_what_it_acknowledged(
    zygote: Zygote, ram_folder: Path, tmp_path: Path, seed: int, kills: int
) -> None:
    plan = random.Random(seed)
    for store_number in range(kills // KILLS_PER_STORE):
        folder = ram_folder / str(store_number)
        recorder = Recorder()
        for number in range(KILLS_PER_STORE):
            _load_and_kill(zygote, recorder, folder, plan, f"s{number}")
        recorder.read_all(zygote, folder)
        recorder.history.check(tmp_path, seed)
        assert [event for event in recorder.others if event[0] == "failed"] == []
        assert len(recorder.ends) > KILLS_PER_STORE, "next to nothing was acknowledged"


def _load_and_kill(
    zygote: Zygote, recorder: Recorder, folder: Path, plan: random.Random, name: str
) -> None:
    flush = plan.choice(list(FlushDiskType))
    worker = zygote.start(
        "load", folder=str(folder), flush=flush.value, name=name, seed=plan.getrandbits(32)
    )
    if plan.random() < 0.8:
        worker.expect("open")
    recorder.take(worker.events(plan.uniform(0, LOAD_SECONDS_MAX)))
    worker.kill()
    recorder.take(worker.events())
    worker.wait()
