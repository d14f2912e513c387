"""consumerOffset.json, delayOffset.json and timercheck: read, moved into bounds, saved."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy_broker.errors import ConfigFileError, StoreDirectoryError
from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files.saver import Saver, save_all, save_now
from rocketpy_broker.services.delay.offsets import DelayOffsetManager
from rocketpy_broker.services.groups.manager import SubscriptionGroupManager
from rocketpy_broker.services.offsets.committed import NOT_COMMITTED, ConsumerOffsetManager
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.files.timer_checkpoint import (
    TimerCheckpoint,
    TimerCheckpointFile,
    export_checkpoint,
)
from rocketpy_broker.store.values import QueueBounds, QueueKey
from tests.support.broker import rocketmq_files

NOW_MS = 1_700_000_000_000
VERSION = {"counter": 3, "stateVersion": 2, "timestamp": 1_600_000_000_000}


def consumers(folder: Path) -> ConsumerOffsetManager:
    manager = ConsumerOffsetManager(folder, ManualClock())
    manager.load()
    return manager


def wide(_queue: QueueKey) -> QueueBounds:
    return QueueBounds(0, 1 << 40)


def delays(folder: Path, range_of: Callable[[QueueKey], QueueBounds] = wide) -> DelayOffsetManager:
    manager = DelayOffsetManager(folder, ManualClock())
    manager.load(range_of)
    return manager


def saved(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_b05_offsets_of_rocketmq_are_read_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(rocketmq_files.CONSUMER_OFFSETS)
    offsets = consumers(tmp_path)
    found = [offsets.query("g1", "TopicA", queue_id) for queue_id in (0, 1, 2, 3, 10)]
    assert found == [250, 251, 2**63 - 1, NOT_COMMITTED, 7]
    assert offsets.query("g1", "%RETRY%g1", 0) == 3
    save_now(offsets)
    assert path.read_text() == rocketmq_files.CONSUMER_OFFSETS
    offsets.commit("g1", "TopicA", 0, 300)
    save_now(offsets)
    assert saved(path) == {
        "dataVersion": VERSION,
        "offsetTable": {
            "%RETRY%g1@g1": {"0": 3},
            "TopicA@g1": {"0": 300, "1": 251, "2": 2**63 - 1, "10": 7},
        },
    }
    assert list(saved(path)["offsetTable"]["TopicA@g1"]) == ["0", "1", "2", "10"]


@pytest.mark.parametrize(
    "text", ['{"offsetTable":{"T@g":{0:"5"}}}', "{'offsetTable':{'T@g':{'0':5,},},}"]
)
def test_b05_offsets_of_rocketmq_4_and_as_strings_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "consumerOffset.json").write_text(text)
    assert consumers(tmp_path).query("g", "T", 0) == 5


def test_b05_the_data_version_counts_500_commits(tmp_path: Path) -> None:
    offsets = consumers(tmp_path)
    for number in range(1_499):
        offsets.commit("g", "T", 0, number)
    save_now(offsets)
    path = tmp_path / "consumerOffset.json"
    assert saved(path)["dataVersion"] == {"counter": 2, "stateVersion": 0, "timestamp": NOW_MS}


def test_b05_offsets_survive_a_save_that_failed(tmp_path: Path) -> None:
    offsets = consumers(tmp_path)
    offsets.commit("g", "T", 0, 7)
    (tmp_path / "consumerOffset.json.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        save_now(offsets)
    (tmp_path / "consumerOffset.json.tmp").rmdir()
    save_now(offsets)
    assert consumers(tmp_path).query("g", "T", 0) == 7


async def test_b05_a_deleted_topic_or_group_is_forgotten(tmp_path: Path) -> None:
    offsets = consumers(tmp_path)
    for group, topic in itertools.product(("g", "h"), ("T", "U")):
        offsets.commit(group, topic, 0, 1)
    await offsets.delete_topic("T")
    await offsets.delete_group("h")
    save_now(offsets)
    content = saved(tmp_path / "consumerOffset.json")
    assert content["offsetTable"] == {"U@g": {"0": 1}}
    assert content["dataVersion"]["counter"] == 2


def test_b01_delay_offsets_of_rocketmq_are_kept_and_saved_on_change(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text(rocketmq_files.DELAY_OFFSETS)
    offsets = delays(tmp_path)
    assert [offsets.next_offset(level) for level in (1, 2, 3)] == [5, 0, 7]
    save_now(offsets)
    assert path.read_text() == rocketmq_files.DELAY_OFFSETS
    for number in range(200):
        offsets.update(2, number)
    save_now(offsets)
    assert saved(path) == {
        "dataVersion": {"counter": 4, "stateVersion": 2, "timestamp": NOW_MS},
        "offsetTable": {"1": 5, "2": 199, "3": 7},
    }
    assert delays(tmp_path).next_offset(2) == 199


def test_b01_delay_offsets_outside_their_queue_are_moved_into_it(tmp_path: Path) -> None:
    (tmp_path / "delayOffset.json").write_text(rocketmq_files.DELAY_OFFSETS)
    bounds = {
        QueueKey("SCHEDULE_TOPIC_XXXX", 0): QueueBounds(6, 9),
        QueueKey("SCHEDULE_TOPIC_XXXX", 2): QueueBounds(0, 4),
    }
    offsets = delays(tmp_path, bounds.__getitem__)
    assert [offsets.next_offset(level) for level in (1, 3)] == [6, 4]
    save_now(offsets)
    assert saved(tmp_path / "delayOffset.json")["offsetTable"] == {"1": 6, "3": 4}


def test_b01_no_delay_offsets_no_file(tmp_path: Path) -> None:
    offsets = delays(tmp_path)
    save_now(offsets)
    assert offsets.next_offset(1) == 0
    assert list(tmp_path.iterdir()) == []


def test_b05_one_table_that_cannot_be_saved_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets, levels = consumers(tmp_path), delays(tmp_path)
    offsets.commit("g", "T", 0, 7)
    levels.update(1, 2)
    (tmp_path / "consumerOffset.json.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        asyncio.run(save_all((Saver(offsets), Saver(levels))))
    assert delays(tmp_path).next_offset(1) == 2
    assert "ConsumerOffsetManager could not be saved" in caplog.text


def timercheck(folder: Path, *numbers: int) -> Path:
    """Writes a file as RocketMQ leaves it; returns its path."""
    path = folder / "timercheck"
    path.write_bytes(struct.pack(">7q", *numbers).ljust(4096, b"\0"))
    return path


def test_timercheck_has_the_layout_of_rocketmq(tmp_path: Path) -> None:
    path = timercheck(tmp_path, 1, 2, 3, 4, 5, 6, 7)
    file = TimerCheckpointFile(path)
    checkpoint = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7)
    assert file.load() == checkpoint
    before = path.read_bytes()
    file.save(checkpoint)
    assert path.read_bytes() == before


def test_timercheck_that_is_handed_over_names_one_offset_and_a_whole_second(
    tmp_path: Path,
) -> None:
    path = tmp_path / "timercheck"
    TimerCheckpointFile(path).save(export_checkpoint(7, NOW_MS + 1))
    assert struct.unpack_from(">7q", path.read_bytes()) == (NOW_MS, 0, 7, 7, 0, 0, 0)
    assert len(path.read_bytes()) == 4096


def test_timercheck_of_a_wrong_size_is_named_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(b"\0" * 100)
    with pytest.raises(StoreDirectoryError, match="timercheck: it has 100 bytes"):
        TimerCheckpointFile(path).load()
    assert path.read_bytes() == b"\0" * 100


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
TABLES = st.dictionaries(st.sampled_from(["T@g", "1", "x"]), VALUES | st.just({"0": 1})) | VALUES
NAMES = ("dataVersion", "offsetTable", "topicConfigTable", "subscriptionGroupTable")


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*NAMES, "forbiddenTable"), TABLES)))
def test_b03_whatever_a_file_holds_it_is_read_or_named_and_stays(content: dict[str, Any]) -> None:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        delay_offsets = DelayOffsetManager(folder, clock)
        loads: dict[str, Callable[[], None]] = {
            "consumerOffset.json": ConsumerOffsetManager(folder, clock).load,
            "delayOffset.json": lambda: delay_offsets.load(wide),
            "subscriptionGroup.json": SubscriptionGroupManager(folder, clock).load,
            "topics.json": TopicConfigManager(folder, clock, "c", "b").load,
        }
        for file, load in loads.items():
            text = json.dumps(content)
            (folder / file).write_text(text)
            with contextlib.suppress(ConfigFileError):
                load()
            assert (folder / file).read_text() == text


@pytest.mark.parametrize("offset", ["9223372036854775808", "1.5", "true", "[1]", '"x"', "{}"])
def test_b03_an_offset_that_cannot_be_is_broken(tmp_path: Path, offset: str) -> None:
    (tmp_path / "consumerOffset.json").write_text(f'{{"offsetTable":{{"T@g":{{0:{offset}}}}}}}')
    with pytest.raises(
        ConfigFileError, match=r"is no (object|string|integer)|is neither true nor|invalid literal"
    ):
        consumers(tmp_path)
