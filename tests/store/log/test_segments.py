"""Segments of the log: failed flushes, and the files that a crash leaves."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.store.log.filler import fill
from rocketpy_broker.store.log.segment import Segment
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import KEEP_NUMBERS, AppendHints
from rocketpy_broker.store.recovery.damage_fill import fill_damages
from rocketpy_broker.store.values import Damage
from tests.support.blocks import wire_block
from tests.support.store.messages import QUEUE, numbered, put, put_all, read_all
from tests.support.store.planted_faults import FIRST, flip
from tests.support.store.stores import SEGMENT_BYTES, OpenStore


def test_f08_a_segment_whose_flush_has_failed_is_not_flushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers pages that the system dropped after it failed to write them."""
    segment = Segment.create(tmp_path, 0, SEGMENT_BYTES)

    def failing(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing)
        with pytest.raises(OSError, match="Input/output") as first:
            segment.flush()
    with pytest.raises(OSError, match="Input/output") as second:
        segment.flush()
    assert second.value is first.value
    segment.close()


def test_an_empty_file_behind_the_segments_is_removed(
    open_store: OpenStore, tmp_path: Path, store: MessageStore
) -> None:
    """Covers a file that was created ahead, but not allocated before the kill."""
    put_all(store, numbered(5))
    store.close()
    path = tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}"
    path.touch()
    again = open_store()
    assert not path.exists()
    assert read_all(again) == numbered(5)


def test_f16_damage_at_a_segments_end_that_has_room_for_no_record_stays(
    store: MessageStore,
) -> None:
    put(store, [b"before"])
    (segment,) = store._log.files.segments
    damage = Damage(segment.path, segment.end - 4, 4, "was damaged")
    assert not fill(store._log, damage, 0, None)


def test_f16_damage_that_the_log_has_no_more_is_not_filled(
    tmp_path: Path, store: MessageStore
) -> None:
    put_all(store, numbered(5))
    before = (tmp_path / "commitlog" / FIRST).read_bytes()
    (segment,) = store._log.files.segments
    damage = Damage(segment.path, 10 * SEGMENT_BYTES, 100, "was damaged")
    fill_damages(store._log, store._queues, [damage], 0)
    assert (tmp_path / "commitlog" / FIRST).read_bytes() == before


def test_f05_numbers_are_those_of_the_records_around_damage(
    tmp_path: Path, store: MessageStore
) -> None:
    begins, kept = [], AppendHints(first_number=KEEP_NUMBERS)
    for number in (7, ~300, 9):
        block = wire_block(QUEUE.topic, [b"numbered"]).parsed()
        block.header["prepared_transaction_offset"] = number
        begins.append(store.append(QUEUE, block, kept).physical_offset)
        put(store, [b"damaged"])
    found = [*store.batch_marks.numbers_from(0)], [*store.batch_marks.origins_from(0)]
    assert [np.concatenate(some).tolist() for some in found] == [[7, 9], [300]]
    flip(tmp_path / "commitlog" / FIRST, begins[2] - 1)
    flip(tmp_path / "commitlog" / FIRST, begins[0] + 90)
    found = [*store.batch_marks.numbers_from(0)], [*store.batch_marks.origins_from(0)]
    assert [np.concatenate(some).tolist() for some in found] == [[9], [300]]
