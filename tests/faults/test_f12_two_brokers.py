"""Row F12: of two brokers on one directory exactly one serves."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from rocketpy_broker import LocalBroker
from rocketpy_broker.local import LocalBrokerError
from tests.faults import programs
from tests.faults.clients import join_all, run_all
from tests.faults.zygote import Zygote

RACES_QUICK = 50
RACES_TORTURE = 500
torture = (pytest.mark.torture, pytest.mark.timeout(3600))


@pytest.mark.parametrize("races", [RACES_QUICK, pytest.param(RACES_TORTURE, marks=torture)])
def test_f12_of_two_stores_on_one_directory_exactly_one_opens(
    zygote: Zygote, ram_folder: Path, races: int
) -> None:
    for number in range(races):
        # Half of the races are for a directory that is not there yet.
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
