"""Emptied topics: their messages are gone for good, and their offsets go on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.errors import StoreClosedError
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueBounds, QueueKey
from tests.support.blocks import wire_block
from tests.support.store.disk_calls import before_call, failing
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    read_all,
    remove_oldest_segment,
    save_manifest,
)
from tests.support.store.stores import OpenStore, crash

FOREVER_MS = 1 << 50


def empty(store: MessageStore, topic: str = QUEUE.topic) -> None:
    """Removes the topic's messages."""
    emptying = store.plan_emptying(topic)
    emptying.run()
    emptying.finish()


def emptied(store: MessageStore, count: int = 300) -> None:
    """Fills two topics, with several files for the queue of the one that it empties."""
    put_all(store, numbered(count))
    put(store, [b"other"], OTHER)
    flush_log(store)
    empty(store)


def test_an_emptied_topic_has_no_messages_and_its_offsets_go_on(store: MessageStore) -> None:
    emptied(store)
    assert store.range_of(QUEUE) == QueueBounds(300, 300)
    assert read_all(store) == []
    assert read_all(store, OTHER) == [b"other"]
    put(store, [b"next"])
    flush_log(store)
    assert store.range_of(QUEUE) == QueueBounds(300, 301)
    assert read_all(store) == [b"next"]


@pytest.mark.parametrize("lost", ["", "consumequeue", "index", "rocketpy/manifest.json"])
@pytest.mark.parametrize("stop", [MessageStore.close, crash])
@pytest.mark.parametrize("saved", [False, True])
def test_no_start_brings_the_messages_back(
    tmp_path: Path,
    new_store: OpenStore,
    store: MessageStore,
    stop: Callable[[MessageStore], None],
    lost: str,
    *,
    saved: bool,
) -> None:
    emptied(store)
    if saved:
        save_manifest(store)
    put(store, [b"next"])
    flush_log(store)
    stop(store)
    path = tmp_path / lost
    if path.is_file():
        path.unlink()
    elif lost and path.exists():
        shutil.rmtree(path)
    for _ in range(2):
        again = new_store()
        again.open()
        assert again.range_of(QUEUE) == QueueBounds(300, 301)
        assert read_all(again) == [b"next"]
        assert read_all(again, OTHER) == [b"other"]
        again.close()


def test_a_crash_after_the_mark_finishes_at_the_start(
    new_store: OpenStore, store: MessageStore
) -> None:
    put_all(store, numbered(300))
    flush_log(store)
    store.plan_emptying(QUEUE.topic).run()
    crash(store)
    again = new_store()
    again.open()
    assert again.range_of(QUEUE) == QueueBounds(300, 300)


def test_a_mark_that_cannot_be_saved_changes_nothing(tmp_path: Path, store: MessageStore) -> None:
    put_all(store, numbered(9))
    flush_log(store)
    (tmp_path / "config" / "emptiedTopics.json.tmp").mkdir(parents=True)
    with pytest.raises(OSError, match="emptiedTopics"):
        store.plan_emptying(QUEUE.topic).run()
    assert len(read_all(store)) == 9


def test_messages_that_come_meanwhile_stay(new_store: OpenStore, store: MessageStore) -> None:
    put_all(store, numbered(7))
    flush_log(store)
    emptying = store.plan_emptying(QUEUE.topic)
    put(store, [b"meanwhile"])
    flush_log(store)
    emptying.run()
    put(store, [b"later"], QueueKey(QUEUE.topic, 0))
    flush_log(store)
    emptying.finish()
    assert read_all(store) == [b"meanwhile"]
    assert read_all(store, QueueKey(QUEUE.topic, 0)) == [b"later"]
    crash(store)
    again = new_store()
    again.open()
    assert again.range_of(QUEUE) == QueueBounds(7, 8)


def test_keys_find_no_message_of_before(store: MessageStore) -> None:
    for body in (b"old", b"new"):
        block = wire_block(QUEUE.topic, [body], keys=["k"]).parsed()
        store.append(QUEUE, block)
        flush_log(store)
        if body == b"old":
            empty(store)
    [found] = store.messages.by_key(QUEUE.topic, "k", 0, FOREVER_MS, 64)
    assert b"new" in bytes(found)


def test_a_topic_that_is_created_again_starts_at_0(store: MessageStore) -> None:
    emptied(store, 5)
    delete_topic(store, QUEUE.topic)
    put(store, [b"again"])
    flush_log(store)
    assert store.range_of(QUEUE) == QueueBounds(0, 1)
    assert read_all(store) == [b"again"]


def test_segments_of_emptied_topics_expire_and_marks_go_with_them(store: MessageStore) -> None:
    emptied(store)
    marks = store._parts.queues._emptied
    while store.positions().log_begin < marks.below(QUEUE.topic):
        put(store, numbered(5), OTHER)
        flush_log(store)
        remove_oldest_segment(store)
        assert store.range_of(QUEUE) == QueueBounds(300, 300)
    empty(store, OTHER.topic)
    assert [*marks.marks] == [OTHER.topic]


def test_nothing_is_emptied_while_a_queue_cannot_grow(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a message that the queue gets only later, after messages of other queues."""
    with monkeypatch.context() as full:
        before_call(full, "pwrite", f"*/consumequeue/{QUEUE.topic}/*", failing(errno.ENOSPC))
        put(store, [b"waits"])
        flush_log(store)
        with pytest.raises(StoreClosedError, match="free space"):
            store.plan_emptying(QUEUE.topic)
    empty(store)
    assert store.range_of(QUEUE) == QueueBounds(1, 1)
