"""Two brokers on one directory: exactly one serves."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.embedded.local_broker import LocalBrokerError
from tests.faults.histories.clients import join_all, run_all
from tests.faults.histories.recorder import Recorder
from tests.faults.workers import programs
from tests.faults.workers.zygote import Worker, Zygote

RACES_QUICK = 50
RACES_TORTURE = 500
REMOVALS_QUICK = 20
REMOVALS_TORTURE = 500
LOAD_SECONDS_MAX = 0.03
# Loaders use the store until they are killed.
STEPS_MAX = 1 << 30
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


@pytest.mark.parametrize("races", [RACES_QUICK, pytest.param(RACES_TORTURE, marks=torture)])
def test_f12_of_two_stores_on_one_directory_exactly_one_opens(
    zygote: Zygote, ram_folder: Path, races: int
) -> None:
    for number in range(races):
        # Half of the races are for a directory that does not exist yet.
        folder = ram_folder / str(number // 2)
        racers = [zygote.start(programs.race, folder=str(folder)) for _ in range(2)]
        for racer in racers:
            racer.expect("ready")
        for racer in racers:
            racer.go()
        words = [next(racer.events()) for racer in racers]
        assert sorted(word[0] for word in words) == ["locked", "open"], words
        for racer, word in zip(racers, words, strict=True):
            if word[0] == "open":
                racer.go()
                racer.expect("closed")
            else:
                assert "in use by another broker" in word[1]
            assert racer.wait() == 0


def test_f12_of_two_brokers_started_at_once_exactly_one_serves(ram_folder: Path) -> None:
    brokers = [LocalBroker(ram_folder / "store") for _ in range(2)]
    refused: dict[LocalBroker, str] = {}

    def start(broker: LocalBroker) -> None:
        try:
            broker.start()
        except LocalBrokerError as error:
            refused[broker] = str(error)

    try:
        join_all(run_all([partial(start, broker) for broker in brokers]))
        [(loser, reason)] = refused.items()
        assert "in use by another broker" in reason
        [winner] = [broker for broker in brokers if broker is not loser]
        winner.create_topic("T")
    finally:
        for broker in brokers:
            broker.kill()


def take_acknowledged(recorder: Recorder, worker: Worker, count: int) -> None:
    """Records the worker's events until `count` messages of all workers are acknowledged."""
    for event in worker.events():
        recorder.take_one(event)
        if len(recorder.ends) >= count:
            return
    raise AssertionError("next to nothing was acknowledged")


@pytest.mark.parametrize(
    "removals", [REMOVALS_QUICK, pytest.param(REMOVALS_TORTURE, marks=torture)]
)
def test_f12_a_lock_file_removed_at_random_moments_lets_no_second_store_in(
    zygote: Zygote, ram_folder: Path, tmp_path: Path, seed: int, removals: int
) -> None:
    plan = random.Random(seed)
    recorder = Recorder()
    lock = ram_folder / "lock"
    for number in range(removals):
        name = f"s{number}"
        first = recorder.load(zygote, ram_folder, plan, f"{name}-first", steps_max=STEPS_MAX)
        first.expect("open")
        if number % 2:
            take_acknowledged(recorder, first, number + 1)
        recorder.take(first.events(plan.uniform(0, LOAD_SECONDS_MAX)))
        lock.unlink()
        if plan.random() < 0.5:
            lock.write_bytes(b"lock")
        second = recorder.load(zygote, ram_folder, plan, f"{name}-second", steps_max=STEPS_MAX)
        event = second.expect("failed")
        assert event[1] == "StoreLockedError", event
        recorder.take(first.events(LOAD_SECONDS_MAX))
        for worker in (first, second):
            recorder.kill(worker)
    recorder.read_all(zygote, ram_folder)
    recorder.history.check(tmp_path, seed)
    assert len(recorder.ends) >= removals
    refused = [event for event in recorder.others if event[0] == "failed"]
    assert refused, "no store has noticed that its lock file was removed"
    assert all("lock was removed, moved or replaced" in event[2] for event in refused), refused
