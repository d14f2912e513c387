"""H04: messages return to a slave whose new master has not removed them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.store.message_store import MessageStore
from tests.store.test_emptied_topics import empty
from tests.store.test_log_copy import copy, opened, same
from tests.support.store.messages import (
    OTHER,
    QUEUE,
    delete_topic,
    flush_log,
    numbered,
    put,
    put_all,
    remove_oldest_segment,
)
from tests.support.store.stores import crash

# More than a file of units.
MANY = 1_200
NONE = {QUEUE.topic: -1}


def return_all(slave: MessageStore, deleted: dict[str, int], emptied: dict[str, int]) -> None:
    returned = slave.plan_return(deleted, emptied)
    for _ in returned.restore():
        pass
    returned.save()
    for _ in returned.show():
        pass


@pytest.mark.parametrize("stop", [MessageStore.close, crash])
@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("later", [0, 2])
def test_h04_deleted_messages_return(
    tmp_path: Path, stop: Callable[[MessageStore], None], count: int, later: int
) -> None:
    with opened(tmp_path / "master") as master:
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(count))
            put(master, [b"other"], OTHER)
            copy(master, slave)
            delete_topic(slave, QUEUE.topic)
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(later, count))
            copy(master, slave)
            assert slave.range_of(QUEUE) != master.range_of(QUEUE)
            return_all(slave, NONE, {})
            same(master, slave)
            flush_log(slave)
            stop(slave)
        with opened(tmp_path / "slave") as slave:
            same(master, slave)
            assert slave.topic_marks == ({}, {})
            put(master, [b"next"])
            copy(master, slave)
            same(master, slave)


def test_h04_emptied_messages_return_up_to_the_masters_mark(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(MANY))
            empty(master)
            put_all(master, numbered(MANY, MANY))
            flush_log(master)
            copy(master, slave)
            empty(slave)
            return_all(slave, {}, dict(master.topic_marks[1]))
            same(master, slave)
            assert slave.range_of(QUEUE).min_offset == MANY
        with opened(tmp_path / "slave") as slave:
            same(master, slave)


def test_h04_messages_of_removed_segments_do_not_return(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave") as slave:
        put_all(master, numbered(MANY))
        flush_log(master)
        copy(master, slave)
        flush_log(slave)
        delete_topic(slave, QUEUE.topic)
        for store in (master, slave):
            remove_oldest_segment(store)
        return_all(slave, NONE, {})
        same(master, slave)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("later", [0, 2])
def test_h04_a_killed_return_is_repeated(tmp_path: Path, steps: int, later: int) -> None:
    with opened(tmp_path / "master") as master:
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(MANY))
            copy(master, slave)
            delete_topic(slave, QUEUE.topic)
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(later, MANY))
            copy(master, slave)
            restoring = slave.plan_return(NONE, {}).restore()
            for _ in range(steps):
                next(restoring)
            crash(slave)
        with opened(tmp_path / "slave") as slave:
            assert QUEUE.topic in slave.topic_marks[0]
            return_all(slave, NONE, {})
            same(master, slave)


def test_h04_a_return_that_was_killed_after_its_marks_is_complete(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        with opened(tmp_path / "slave") as slave:
            put_all(master, numbered(MANY))
            copy(master, slave)
            delete_topic(slave, QUEUE.topic)
            returned = slave.plan_return(NONE, {})
            for _ in returned.restore():
                pass
            returned.save()
            crash(slave)
        with opened(tmp_path / "slave") as slave:
            same(master, slave)
