"""A file in place of a queue's folder: it is reported, kept, and harms no other queue."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreDirectoryError
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.errors import QueueGrowthError
from rocketpy_broker.store.values import QueueKey
from tests.support.store.messages import OTHER, QUEUE, numbered, put, put_all, read_all
from tests.support.store.stores import OpenStore, crash

NEW = QueueKey(QUEUE.topic, 7)
FOREIGN = b"not ours"


def place_of(folder: Path, queue: QueueKey) -> Path:
    return folder / "consumequeue" / queue.topic / str(queue.queue_id)


@pytest.fixture(params=[True, False], ids=["stopped", "crashed"])
def filled(request: pytest.FixtureRequest, open_store: OpenStore, tmp_path: Path) -> Path:
    """Returns the directory of a store with two queues."""
    store = open_store()
    put_all(store, numbered(30))
    put(store, [b"other"], OTHER)
    store.close() if request.param else crash(store)
    return tmp_path


@pytest.mark.parametrize("queue", [NEW, QUEUE], ids=["a new queue's", "a queue's"])
def test_a_file_in_the_place_of_a_queue_is_put_apart_and_the_queue_rebuilt(
    new_store: OpenStore, filled: Path, queue: QueueKey, caplog: pytest.LogCaptureFixture
) -> None:
    place = place_of(filled, queue)
    if queue == QUEUE:
        shutil.rmtree(place)
    place.write_bytes(FOREIGN)
    store = new_store()
    with caplog.at_level(logging.ERROR):
        store.open()
    kept = filled / "rocketpy" / "quarantine" / f"consumequeue-{queue.topic}-{queue.queue_id}"
    assert f"{place}: is a file where a queue has its folder" in caplog.text
    assert str(kept) in caplog.text
    assert kept.read_bytes() == FOREIGN
    assert read_all(store) == numbered(30)
    assert read_all(store, OTHER) == [b"other"]
    put(store, [b"first"], NEW)
    assert read_all(store, NEW) == [b"first"]


def test_a_file_in_the_place_of_a_queue_of_another_s_store_is_named_and_left_alone(
    new_store: OpenStore, filled: Path
) -> None:
    """Covers RocketMQ's store: without a manifest the sizes of its files are unknown."""
    shutil.rmtree(filled / "rocketpy")
    place = place_of(filled, NEW)
    place.write_bytes(FOREIGN)
    with pytest.raises(StoreDirectoryError, match="is a file where a queue has its folder") as met:
        new_store().open()
    assert met.value.path == place
    assert place.read_bytes() == FOREIGN


@pytest.mark.parametrize("of_topic", [False, True], ids=["queue", "topic"])
def test_a_file_that_comes_while_the_store_is_open_refuses_its_queue_alone_by_name(
    filled: Path, of_topic: bool, caplog: pytest.LogCaptureFixture, store: MessageStore
) -> None:
    queue = QueueKey("TopicC", 0) if of_topic else NEW
    place = place_of(filled, queue).parent if of_topic else place_of(filled, queue)
    place.write_bytes(FOREIGN)
    with pytest.raises(QueueGrowthError, match=f"{place}.*move that file out of the store"):
        put(store, [b"refused"], queue)
    assert str(place) in caplog.text
    put(store, [b"another"], OTHER)
    assert read_all(store, OTHER) == [b"other", b"another"]
    assert place.read_bytes() == FOREIGN
    place.unlink()
    put(store, [b"taken"], queue)
    assert read_all(store, queue) == [b"taken"]
