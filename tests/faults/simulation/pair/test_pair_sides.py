"""M03: the two machines of a simulated pair."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.faults.simulation.pair.sides import Life, Sides


@pytest.mark.parametrize("flush", FlushDiskType)
def test_m3_a_slave_whose_master_may_have_lost_messages_is_not_in_sync(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    sides = Sides(tmp_path, random.Random(0))
    sides.flush = flush
    sides.a.life = Life(sides.a.host)
    sides.b.was_in_sync = True
    sides.a.crash(is_power_cut=True)
    assert sides.b.was_in_sync == (flush is FlushDiskType.SYNC_FLUSH)
    sides.loop.tear_down()
