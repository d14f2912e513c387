"""F16: a directory that RocketMQ has had, with a damaged record and with stale bytes behind it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy_broker.clock import ManualClock
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import QueueKey
from tests.store.check.planted_faults import FIRST, flip
from tests.store.conftest import OpenStore, crash
from tests.store.messages import QUEUE, delete_topic, put, read_all
from tests.store.recovery.rocketmq_turn import LATER_MS, RocketMQTurn

OTHER = QueueKey(QUEUE.topic, 3)
QUEUES = (QUEUE, OTHER)
SIZES = {"segment_bytes": 65_536, "queue_file_bytes": 6_000}
COUNT, DAMAGED = 200, 50
LEFT = {"stopped": None, "killed": "4711", "killed, 4.9 over ours": "rocketpy 1"}
Bodies = dict[QueueKey, list[bytes]]
Filled = Callable[[], list[int]]


def body(word: str, number: int, size: int = 40) -> bytes:
    return f"{word} {number}".encode().ljust(size, b".")


@pytest.fixture
def filled(new_store: OpenStore) -> Filled:
    """Writes 200 messages to two queues in turn, and stops; gives where each lies in the log."""

    def fill() -> list[int]:
        store = new_store(**SIZES)
        store.open()
        offsets = [put(store, [body("old", n)], QUEUES[n % 2]) for n in range(COUNT)]
        store.close()
        return offsets

    return fill


def shown(store: MessageStore) -> Bodies:
    return {key: read_all(store, key) for key in QUEUES}


def old(count: int) -> Bodies:
    return {
        key: [body("old", n) for n in range(number, count, 2)] for number, key in enumerate(QUEUES)
    }


def taken_over(
    folder: Path, cut: int, clock: ManualClock, count: int, size: int, abort: str | None
) -> tuple[RocketMQTurn, Bodies]:
    """RocketMQ ends its log at `cut`, puts `count` messages into QUEUE, and leaves."""
    turn = RocketMQTurn(folder)
    turn.start(cut)
    expected = old(DAMAGED)
    for number in range(count):
        turn.put(QUEUE, body("new", number, size), clock.now_ms() + LATER_MS + number)
        expected[QUEUE].append(body("new", number, size))
    turn.leave(abort=abort)
    return turn, expected


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("size", [40, 47], ids=["ends at a stale record", "ends inside one"])
@pytest.mark.parametrize("had_it", ["RocketMQ alone", "both"])
def test_f16_what_rocketmq_has_cut_never_comes_back(
    new_store: OpenStore,
    tmp_path: Path,
    clock: ManualClock,
    filled: Filled,
    had_it: str,
    size: int,
    left: str,
) -> None:
    offsets = filled()
    flip(tmp_path / "commitlog" / FIRST, offsets[DAMAGED] + 90)
    turn, expected = taken_over(tmp_path, offsets[DAMAGED], clock, 13, size, LEFT[left])
    if had_it == "RocketMQ alone":
        shutil.rmtree(tmp_path / "rocketpy")
    store = new_store(**SIZES)
    result = store.open()
    assert (result.end, result.damages) == (turn.end, [])
    assert shown(store) == expected
    assert put(store, [b"next"], OTHER) == turn.end
    expected[OTHER].append(b"next")
    store.close()
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    assert not log[store.positions().log_end :].strip(b"\0")
    again = new_store(**SIZES)
    assert again.open().damages == []
    assert shown(again) == expected


@pytest.mark.parametrize("left", LEFT)
def test_f16_after_our_crash_rocketmqs_messages_are_no_torn_tail(
    new_store: OpenStore, tmp_path: Path, clock: ManualClock, left: str
) -> None:
    store = new_store(**SIZES)
    store.open()
    for n in range(DAMAGED):
        put(store, [body("old", n)], QUEUES[n % 2])
    end = store.positions().log_end
    crash(store)
    turn, expected = taken_over(tmp_path, end, clock, 10, 40, LEFT[left])
    again = new_store(**SIZES)
    assert again.open().end == turn.end
    assert shown(again) == expected


def test_f16_a_mark_of_a_deleted_topic_hides_nothing_of_rocketmqs(
    new_store: OpenStore, tmp_path: Path, clock: ManualClock, filled: Filled
) -> None:
    offsets = filled()
    store = new_store(**SIZES)
    store.open()
    gone = QueueKey("Gone", 0)
    put(store, [b"deleted"], gone)
    delete_topic(store, "Gone")
    store.close()
    flip(tmp_path / "commitlog" / FIRST, offsets[DAMAGED] + 90)
    (tmp_path / "consumequeue/Gone/0").mkdir(parents=True)
    (tmp_path / f"consumequeue/Gone/0/{FIRST}").write_bytes(bytes(SIZES["queue_file_bytes"]))
    turn = RocketMQTurn(tmp_path)
    turn.start(offsets[DAMAGED])
    for number in range(3):
        turn.put(gone, body("made again", number), clock.now_ms() + LATER_MS)
    turn.leave(abort=None)
    again = new_store(**SIZES)
    again.open()
    assert read_all(again, gone) == [body("made again", number) for number in range(3)]


def test_f16_a_clock_that_steps_back_while_rocketmq_writes_loses_nothing(
    new_store: OpenStore, tmp_path: Path, clock: ManualClock, filled: Filled
) -> None:
    end = filled()[-1]
    turn = RocketMQTurn(tmp_path)
    turn.start(end)
    count = COUNT - 1
    for number in range(9):
        turn.put(QUEUES[number % 2], body("new", number), clock.now_ms() - LATER_MS * number)
    turn.leave(abort="4711")
    store = new_store(**SIZES)
    store.open()
    expected = old(count)
    for number in range(9):
        expected[QUEUES[number % 2]].append(body("new", number))
    assert shown(store) == expected
