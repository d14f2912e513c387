"""The later cost of a reset of many queues: copied and encoded entries are counted."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.services.config_files import json_text
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.services.offsets import pending_resets
from rocketpy_broker.services.offsets.committed import RESETS, ConsumerOffsetManager
from rocketpy_broker.store.values import QueueKey, QueueRange

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


def test_b09_a_pull_behind_a_reset_encodes_no_queues_of_other_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encoded: list[int] = []

    def counted(queues: Mapping[int, int]) -> object:
        encoded.append(len(queues))
        return {str(queue_id): offset for queue_id, offset in queues.items()}

    monkeypatch.setattr(pending_resets, "encode_queues", counted)
    committed = ConsumerOffsetManager(tmp_path, ManualClock())
    for number in range(20):
        reset(committed, f"g{number}")
    save_now(committed)
    encoded.clear()
    assert committed.resets.take("g7", QueueKey("T", 0)) == 5
    save_now(committed)
    assert encoded == [QUEUES - 1]
    assert {key: len(queues) for key, queues in saved(tmp_path).items()} == {
        f"T@g{number}": QUEUES - (number == 7) for number in range(20)
    }


def test_b09_names_of_digits_are_encoded_in_parts_as_others_are(
    committed: ConsumerOffsetManager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards against one long call of the encoder, which lets no other thread run."""
    sizes: list[int] = []
    encode = json_text._ENCODER.encode

    class Counting:
        def encode(self, value: object) -> str:
            text = encode(value)
            sizes.append(len(text))
            return text

    monkeypatch.setattr(json_text, "_ENCODER", Counting())
    reset(committed, "1", "2")
    save_now(committed)
    assert max(sizes) <= json_text.ENCODED_KEYS * len('"2999":5,') + 2
    assert len(saved(tmp_path)["2@1"]) == QUEUES


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
    again.set_back(lambda queue: QueueRange(0, 4 if queue.queue_id == 1 else 9))
    assert again.resets.take("g", QueueKey("T", 1)) == 4
    save_now(again)
    assert saved(tmp_path)["T@g"] == {str(each): 5 for each in range(QUEUES) if each != 1}
