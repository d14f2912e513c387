"""Delay levels: their text, the level of a message, and when a waiting one is due."""

from __future__ import annotations

import pytest

from rocketpy_broker.errors import ParameterIllegalError
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.delay_levels import DelayLevels
from rocketpy_broker.store.values import QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record.properties import DELAY
from tests.support.blocks import wire_block
from tests.support.store.stores import OpenStore, clock, crash, new_store

__all__ = ["clock", "new_store"]
LEVEL_2 = QueueKey(SCHEDULE_TOPIC, 1)


def test_d01_the_levels_are_rocketmqs_unless_told_otherwise() -> None:
    levels = DelayLevels.parse()
    assert levels.level_max == 18
    assert levels.delays_ms[:3] == (1_000, 5_000, 10_000)
    assert levels.delays_ms[-1] == 7_200_000
    assert DelayLevels.parse("2s  3m 4h 1d").delays_ms == (2_000, 180_000, 14_400_000, 86_400_000)


@pytest.mark.parametrize(
    "text", ["", "1", "1x", "-1s", "0s", "1s,5s", "1.5s", "1s " * 19, "9999999d"]
)
def test_d01_levels_that_cannot_be_are_refused_by_their_text(text: str) -> None:
    with pytest.raises(ParameterIllegalError, match="messageDelayLevel"):
        DelayLevels.parse(text)


def test_d01_a_level_above_the_highest_is_the_highest() -> None:
    block = wire_block("T", [b"x"] * 6, properties={DELAY: ["1", "2", "3", "0", "-1", "a"]})
    assert DelayLevels.parse("1s 5s").of(block.parsed()).tolist() == [1, 2, 2, 0, 0, 0]
    assert DelayLevels.parse().of(wire_block("T", [b"x"]).parsed()).tolist() == [0]


def test_d02_the_tags_code_of_a_waiting_message_is_when_it_is_due_also_after_a_rebuild(
    open_store: OpenStore,
) -> None:
    store = open_store(FlushDiskType.ASYNC_FLUSH)
    block = wire_block(SCHEDULE_TOPIC, [b"x"], tags="A", properties={DELAY: ["2"]}).parsed()
    stored_ms = store.append(LEVEL_2, block).store_timestamp_ms
    for _ in range(2):
        units = store.queue_lookup.unit_range(LEVEL_2, 0, 1)
        assert units is not None
        assert units.tags_codes.tolist() == [stored_ms + 5_000]
        crash(store)
        store = open_store(FlushDiskType.ASYNC_FLUSH)
