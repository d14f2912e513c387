"""Recoveries with records that have no place in a queue, and fillers of an earlier recovery."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from rocketpy_broker.runtime.clock import ManualClock
from rocketpy_broker.store.log.filler import is_filler
from rocketpy_broker.store.log.scanner import SCAN_BYTES_MAX, LogSpan
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.recovery.foreign import StaleRecords
from rocketpy_broker.store.values import QueueBounds, QueueKey
from rocketpy_proto.model import SCHEDULE_TOPIC
from rocketpy_proto.record import Record, RecordBlock, decode_record, encode_record
from rocketpy_proto.record.sys_flag import TRANSACTION_PREPARED
from tests.store.recovery.rocketmq_turn import LATER_MS, RocketMQTurn
from tests.support.blocks import wire_block
from tests.support.store.messages import OTHER, QUEUE, flush_log, numbered, put, put_all, read_all
from tests.support.store.planted_faults import FIRST, flip, unit_of
from tests.support.store.stores import OpenStore, crash

DAMAGED = 2


def kill(store: MessageStore, folder: Path) -> None:
    """Flushes all of the log and crashes; the next start scans the whole log."""
    flush_log(store)
    crash(store)
    (folder / "rocketpy" / "manifest.json").unlink(missing_ok=True)


def test_f16_a_filler_whose_checksum_a_crash_took_is_written_again_and_not_kept_apart(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put_all(store, numbered(5))
    kill(store, tmp_path)
    checksums = tmp_path / "rocketpy" / "checksums" / FIRST
    before = checksums.read_bytes()
    offset, size = unit_of(tmp_path, DAMAGED)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    for expected in (1, 0):
        store = new_store()
        result = store.open()
        assert [(one.offset, one.length) for one in result.damages] == [(offset, size)]
        assert len(result.quarantined) == expected
        log = (tmp_path / "commitlog" / FIRST).read_bytes()
        assert is_filler(decode_record(log, offset).record)
        kill(store, tmp_path)
        checksums.write_bytes(before)
    assert len(list((tmp_path / "rocketpy" / "quarantine").iterdir())) == 1


def test_f16_a_damaged_half_message_takes_no_place_in_its_queue(
    new_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    put(store, [b"before"])
    block = wire_block(QUEUE.topic, [b"half"]).parsed()
    block.header["sys_flag"] |= TRANSACTION_PREPARED
    offset = store.append(QUEUE, block).physical_offset
    put(store, [b"other"], OTHER)
    kill(store, tmp_path)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    again = new_store()
    assert [damage.offset for damage in again.open().damages] == [offset]
    assert again.range_of(QUEUE) == QueueBounds(0, 1)
    put(again, [b"next"])
    assert read_all(again) == [b"before", b"next"]


def test_f16_the_offset_of_a_damaged_message_that_waits_is_not_given_again(
    new_store: OpenStore, tmp_path: Path
) -> None:
    """Covers the last message of its queue; the units are rebuilt from the log."""
    waiting = QueueKey(SCHEDULE_TOPIC, 1)
    store = new_store()
    store.open()
    offset = [put(store, [body], waiting) for body in numbered(3)][-1]
    put(store, [b"other"], OTHER)
    kill(store, tmp_path)
    flip(tmp_path / "commitlog" / FIRST, offset + 90)
    shutil.rmtree(tmp_path / "consumequeue")
    again = new_store()
    assert [damage.offset for damage in again.open().damages] == [offset]
    assert again.range_of(waiting) == QueueBounds(0, 3)


def test_s09_a_clock_that_steps_back_between_two_parts_of_a_scan_loses_nothing(
    open_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> None:
    store = open_store(segment_bytes=2 * SCAN_BYTES_MAX)
    put_all(store, numbered(3))
    end = store.positions().log_end
    store.close()
    turn = RocketMQTurn(tmp_path)
    turn.start(end)
    bodies = [b"%d" % number + bytes(SCAN_BYTES_MAX // 5) for number in range(3, 9)]
    for number, body in enumerate(bodies, 3):
        turn.put(QUEUE, body, clock.now_ms() - LATER_MS * number)
    turn.leave(abort="4711")
    again = open_store(segment_bytes=2 * SCAN_BYTES_MAX)
    assert read_all(again) == numbered(3) + bodies


def test_a_half_message_that_was_stored_before_the_one_in_front_of_it_is_not_stale() -> None:
    """Covers a half message: it has no queue offset that would show its age."""
    half = Record(QUEUE.topic, QUEUE.queue_id, b"half", sys_flag=TRANSACTION_PREPARED)
    data = encode_record(half)
    block = RecordBlock.parse(data, np.array([len(data)], np.int32))
    stale = StaleRecords(begin=0, queues_end=0, abnormal=False)
    assert not stale.is_stale(LogSpan(0, block), 0, {QUEUE: 5})
