"""A directory back from RocketMQ, with a damaged record and stale bytes after it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.check.read_only import StoreSizes
from rocketpy_broker.store.check.whole_store import StoreCheck
from rocketpy_broker.store.log.filler import FILLER_BYTES_MAX, fill, is_filler
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.values import (
    Damage,
    GetMessageStatus,
    QueueBounds,
    QueueKey,
    ReadLimits,
)
from rocketpy_proto.record import decode_record, encode_blank
from tests.store.recovery.rocketmq_turn import LATER_MS, RocketMQTurn
from tests.support.blocks import bodies_of
from tests.support.store.messages import NO_END, QUEUE, delete_topic, flush_log, put, read_all
from tests.support.store.planted_faults import FIRST, UNIT_BYTES, flip, write_at
from tests.support.store.stores import SEGMENT_BYTES, OpenStore, crash

OTHER = QueueKey(QUEUE.topic, 3)
QUEUES = (QUEUE, OTHER)
SIZES = {"segment_bytes": 65_536, "queue_file_bytes": 6_000}
COUNT, DAMAGED = 200, 50
RECORD_BYTES = 137
LEFT = {"stopped": None, "killed": "4711", "killed, 4.9 over ours": "rocketpy 1"}
Bodies = dict[QueueKey, list[bytes]]
Filled = Callable[[], list[int]]


def body(word: str, number: int, size: int = 40) -> bytes:
    return f"{word} {number}".encode().ljust(size, b".")


@pytest.fixture
def filled(open_store: OpenStore) -> Filled:
    """Returns a function that writes 200 messages to two queues and returns their log offsets."""

    def fill() -> list[int]:
        store = open_store(**SIZES)
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
    """Ends the log at `cut`, puts `count` messages into QUEUE, and stops, as RocketMQ does."""
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
    open_store: OpenStore, tmp_path: Path, clock: ManualClock, filled: Filled
) -> None:
    offsets = filled()
    store = open_store(**SIZES)
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
    again = open_store(**SIZES)
    assert read_all(again, gone) == [body("made again", number) for number in range(3)]


@pytest.mark.parametrize("stop", [MessageStore.close, crash])
@pytest.mark.parametrize("is_cut", [False, True])
def test_f16_an_emptied_topic_stays_empty_and_hides_nothing_of_rocketmqs(
    open_store: OpenStore,
    tmp_path: Path,
    clock: ManualClock,
    filled: Filled,
    stop: Callable[[MessageStore], None],
    *,
    is_cut: bool,
) -> None:
    offsets = filled()
    store = open_store(**SIZES)
    put(store, [b"late"])
    flush_log(store)
    emptying = store.plan_emptying(QUEUE.topic)
    emptying.run()
    emptying.finish()
    end = store.positions().log_end
    stop(store)
    if is_cut:
        flip(tmp_path / "commitlog" / FIRST, offsets[DAMAGED] + 90)
    turn = RocketMQTurn(tmp_path)
    turn.start(offsets[DAMAGED] if is_cut else end)
    news = [body("new", number) for number in range(3)]
    for number, each in enumerate(news):
        turn.put(QUEUE, each, clock.now_ms() + LATER_MS + number)
    turn.leave(abort=None)
    again = open_store(**SIZES)
    assert shown(again) == {QUEUE: news, OTHER: []}


def test_f16_a_clock_that_steps_back_while_rocketmq_writes_loses_nothing(
    open_store: OpenStore, tmp_path: Path, clock: ManualClock, filled: Filled
) -> None:
    end = filled()[-1]
    turn = RocketMQTurn(tmp_path)
    turn.start(end)
    count = COUNT - 1
    for number in range(9):
        turn.put(QUEUES[number % 2], body("new", number), clock.now_ms() - LATER_MS * number)
    turn.leave(abort="4711")
    store = open_store(**SIZES)
    expected = old(count)
    for number in range(9):
        expected[QUEUES[number % 2]].append(body("new", number))
    assert shown(store) == expected


@pytest.fixture
def damaged(open_store: OpenStore, tmp_path: Path, filled: Filled) -> int:
    """Returns the offset of a damaged record: 50 of 200, below the mark, in our killed store."""
    filled()
    store = open_store(**SIZES)
    crash(store)
    (tmp_path / "rocketpy" / "manifest.json").unlink()
    offset = DAMAGED * RECORD_BYTES
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    return offset


def test_f16_a_damaged_record_of_ours_is_filled_so_that_rocketmq_reads_on(
    new_store: OpenStore, tmp_path: Path, damaged: int
) -> None:
    store = new_store(**SIZES)
    (damage,) = store.open().damages
    assert (damage.offset, damage.length) == (damaged, RECORD_BYTES)
    store.close()
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    decoded = decode_record(log, damaged)
    assert (decoded.size, is_filler(decoded.record)) == (RECORD_BYTES, True)
    assert (decoded.record.topic, decoded.record.queue_offset) == (QUEUE.topic, DAMAGED // 2)
    assert decoded.record.physical_offset == damaged
    found = list(StoreCheck(tmp_path, StoreSizes.of(tmp_path)).run())
    assert ["replace a damaged record" in one.text for one in found] == [True, False], found
    # RocketMQ finds a sound log, of the same length.
    (tmp_path / "abort").write_text("4711")
    again = new_store(**SIZES)
    result = again.open()
    assert (result.end, result.damages) == (COUNT * RECORD_BYTES, [])


@pytest.mark.parametrize("lost", [False, True], ids=["queues as they were", "queues rebuilt"])
def test_f16_a_filler_is_shown_to_nobody_and_its_offset_stays_taken(
    new_store: OpenStore, tmp_path: Path, damaged: int, lost: bool
) -> None:
    store = new_store(**SIZES)
    store.open()
    crash(store)
    again = new_store(**SIZES)
    (tmp_path / "lock").unlink()
    if lost:
        shutil.rmtree(tmp_path / "consumequeue")
    again.open()
    half = COUNT // 2
    assert again.range_of(QUEUE) == QueueBounds(0, half)
    number = DAMAGED // 2
    found = again.get_message(QUEUE, number, NO_END, ReadLimits())
    assert (found.status, found.next_offset) == (GetMessageStatus.MESSAGE_WAS_REMOVING, number + 1)
    before = again.get_message(QUEUE, 0, NO_END, ReadLimits.of_bytes(1 << 20))
    assert (len(before.sizes), before.next_offset) == (number, number)
    after = again.get_message(QUEUE, number + 1, NO_END, ReadLimits.of_bytes(1 << 20))
    assert len(after.sizes) == half - number - 1
    assert again.messages.at(damaged) is None
    assert again.statistics.corrupt_record_count == 0
    random_reader = again.random_reader.read(QUEUE, np.arange(half), 1 << 20)
    assert (random_reader.count, len(random_reader.block)) == (half, half - 1)


def test_f16_a_filler_of_a_queues_last_record_keeps_its_offset_when_queues_are_rebuilt(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(**SIZES)
    store.open()
    offset = [put(store, [body("old", n)]) for n in range(4)][-1]
    put(store, [b"other"], OTHER)
    flush_log(store)
    crash(store)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    store = new_store(**SIZES)
    assert len(store.open().damages) == 1
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    again = new_store(**SIZES)
    assert again.open().damages == []
    assert again.range_of(QUEUE) == QueueBounds(0, 4)


def test_f16_damage_that_a_read_met_is_filled_by_a_clean_stop(
    open_store: OpenStore, tmp_path: Path, filled: Filled
) -> None:
    offset = filled()[DAMAGED]
    store = open_store(**SIZES)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    for _ in range(2):
        found = store.get_message(QUEUE, DAMAGED // 2, NO_END, ReadLimits())
        assert found.status is GetMessageStatus.MESSAGE_WAS_REMOVING
    assert store.statistics.corrupt_record_count == 1
    store.close()
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    assert is_filler(decode_record(log, offset).record)
    (kept,) = (tmp_path / "rocketpy" / "quarantine").iterdir()
    assert len(kept.read_bytes()) == RECORD_BYTES


def test_f16_damage_up_to_a_segments_end_becomes_a_blank_record(
    new_store: OpenStore, tmp_path: Path
) -> None:
    store = new_store(segment_bytes=SEGMENT_BYTES)
    store.open()
    offsets = [put(store, [body("old", n, 900)]) for n in range(8)]
    last = max(offset for offset in offsets if offset < SEGMENT_BYTES)
    flush_log(store)
    crash(store)
    for path in (tmp_path / "rocketpy" / "checksums").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    write_at(tmp_path / "commitlog" / FIRST, last, b"\xff" * (SEGMENT_BYTES - last))
    again = new_store(segment_bytes=SEGMENT_BYTES)
    (damage,) = again.open().damages
    assert damage.length == SEGMENT_BYTES - last
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    assert log[last:] == encode_blank(SEGMENT_BYTES - last).ljust(SEGMENT_BYTES - last, b"\0")


@pytest.mark.parametrize(
    "length", [91, 92, 96, 97, 98, FILLER_BYTES_MAX, FILLER_BYTES_MAX + 1, 2 * FILLER_BYTES_MAX + 7]
)
def test_f16_fillers_take_exactly_the_place_of_what_is_damaged(
    open_store: OpenStore, tmp_path: Path, length: int
) -> None:
    sizes = {"segment_bytes": 4 * FILLER_BYTES_MAX, "queue_file_bytes": 6_000}
    store = open_store(**sizes)
    put(store, [b"before"])
    begin = put(store, [bytes(length - 91 - len(QUEUE.topic))]) if length > 97 else 0
    if not begin:
        begin = put(store, [bytes(200)])
    end = put(store, [b"after"])
    damage = Damage(tmp_path / "commitlog" / FIRST, begin, length, "planted")
    assert fill(store._log, damage, 7, None)
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    position = begin
    while position < begin + length:
        decoded = decode_record(log, position)
        assert is_filler(decoded.record)
        assert decoded.record.physical_offset == position
        position += decoded.size
    assert position == begin + length
    assert decode_record(log, end).record.body == b"after"
    assert not fill(store._log, replace(damage, length=90), 7, None)


def test_s11_a_pull_believes_no_unit_that_names_the_middle_of_a_record(
    open_store: OpenStore, tmp_path: Path
) -> None:
    store = open_store(**SIZES)
    offsets = [put(store, [body("old", n)]) for n in range(10)]
    path = tmp_path / "consumequeue" / QUEUE.topic / str(QUEUE.queue_id) / FIRST
    write_at(path, 4 * UNIT_BYTES, struct.pack(">qi", offsets[4] + 3, RECORD_BYTES))
    write_at(path, 6 * UNIT_BYTES, struct.pack(">qi", offsets[5], RECORD_BYTES + 1))
    write_at(path, 8 * UNIT_BYTES, struct.pack(">qi", SIZES["segment_bytes"] - 9, RECORD_BYTES))
    found = []
    offset = 0
    while offset < 10:
        result = store.get_message(QUEUE, offset, NO_END, ReadLimits())
        found += bodies_of(result.data, result.sizes)
        offset = result.next_offset
    assert found == [body("old", n) for n in range(10) if n not in (4, 6, 8)]
    log = (tmp_path / "commitlog" / FIRST).read_bytes()
    assert [decode_record(log, offset).record.body for offset in offsets] == [
        body("old", n) for n in range(10)
    ]
