"""Resets of many queues: their cost, and their saves."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.offsets.committed import RESETS, ConsumerOffsetManager
from rocketpy_broker.store.values import QueueBounds, QueueKey

QUEUES = 3_000


@pytest.fixture
def committed(tmp_path: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(tmp_path, ManualClock())


def reset(committed: ConsumerOffsetManager, group: str, topic: str = "T") -> None:
    """Resets all queues of a topic to 5."""
    committed.resets.set(group, topic, dict.fromkeys(range(QUEUES), 5))


def saved(folder: Path) -> Mapping[str, Mapping[str, int]]:
    found = json.loads((folder / "consumerOffset.json").read_text()).get(RESETS, {})
    assert isinstance(found, dict)
    return found


def test_b09_a_garbage_collection_visits_no_queue_that_was_reset(
    committed: ConsumerOffsetManager,
) -> None:
    gc.collect()
    before = len(gc.get_objects())
    reset(committed, "g")
    assert len(gc.get_objects()) - before < 100


def test_c10_what_changes_while_a_save_runs_is_saved_by_the_next(
    committed: ConsumerOffsetManager, tmp_path: Path
) -> None:
    for group in ("g", "h"):
        reset(committed, group)
    plan = committed.plan_save()
    assert plan is not None
    assert committed.resets.take("g", QueueKey("T", 0)) == 5
    committed.resets.forget_group("h")
    plan.run()
    plan.saved()
    assert {key: len(queues) for key, queues in saved(tmp_path).items()} == {
        "T@g": QUEUES,
        "T@h": QUEUES,
    }
    save_now(committed)
    assert {key: len(queues) for key, queues in saved(tmp_path).items()} == {"T@g": QUEUES - 1}
    committed.resets.forget_topic("T")
    save_now(committed)
    assert saved(tmp_path) == {}


def test_c10_resets_that_are_loaded_are_told_and_saved_again(
    committed: ConsumerOffsetManager, tmp_path: Path
) -> None:
    reset(committed, "g")
    save_now(committed)
    again = ConsumerOffsetManager(tmp_path, ManualClock())
    again.load()
    again.set_back(lambda queue: QueueBounds(0, 4 if queue.queue_id == 1 else 9))
    assert again.resets.take("g", QueueKey("T", 1)) == 4
    save_now(again)
    assert saved(tmp_path)["T@g"] == {str(each): 5 for each in range(QUEUES) if each != 1}
