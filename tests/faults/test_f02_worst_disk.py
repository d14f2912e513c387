"""Row F2 on the worst disk there can be: it keeps what was flushed, and not a byte more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.faults.simulated_disk import SimulatedDisk
from tests.store.conftest import OpenStore, clock, crash, new_store
from tests.store.messages import flush_log, put, read_all

__all__ = ["clock", "new_store"]


class WorstChance(random.Random):
    """No page that was not flushed survives."""

    def random(self) -> float:
        return 0.999


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_f2_what_was_flushed_is_all_there(
    new_store: OpenStore, tmp_path: Path, flush: FlushDiskType
) -> None:
    disk = SimulatedDisk(tmp_path)
    with disk.watched():
        store = new_store(flush)
        store.open()
        for number in range(30):
            put(store, [b"%d" % number * 50])
            flush_log(store)
            if number == 10:
                store.flush_derived()
        put(store, [b"not flushed"])
    crash(store)
    disk.cut_power(WorstChance())
    again = new_store(flush)
    result = again.open()
    assert result.damages == []
    assert read_all(again) == [b"%d" % number * 50 for number in range(30)]
