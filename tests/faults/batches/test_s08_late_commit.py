"""Crashes at any time: a batch is visible once or never.

Kills are simulated inside the process, at every call that changes a file; power cuts by the
simulated disk. After each crash the store is started again and the writer commits its batch again.
Then every message must be there exactly once, in order.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy_broker.services.admin.files.store_export import ExportRequest, FileFormat, StoreExport
from rocketpy_broker.services.batches.ledger import CONFIRM_MS, NO_BATCH
from rocketpy_broker.services.batches.log import BATCHES_QUEUE
from rocketpy_broker.services.batches.outcome import Outcome
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.store.check.read_only import StoreReadLock, StoreSizes
from rocketpy_broker.store.check.whole_store import StoreCheck
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.index.layout import IndexFormat
from tests.faults.batches.batch_use import (
    ONE_BY_ONE,
    WEEK_MS,
    WRITER,
    Desk,
    check_visible,
    delete_between_runs,
)
from tests.faults.disks.simulated_disk import SimulatedDisk
from tests.faults.images import Image, altered, image_of, put_image, read_bodies, send, workshop
from tests.faults.kills.test_f10_killed_recovery import Killed, killed_at_call
from tests.support.store.disk_calls import LOG, DiskCall, before_call, queue_of
from tests.support.store.messages import OTHER, QUEUE, flush_log, remove_oldest_segment
from tests.support.store.stores import SEGMENT_BYTES

CUTS_QUICK = 60
CUTS_TORTURE = 5_000
# Prime, so that every kind of call gets its turn.
KILLS_STRIDE = 5
torture = (pytest.mark.torture, pytest.mark.timeout(7200))
modes = pytest.mark.parametrize("flush", list(FlushDiskType))


def use(folder: Path, flush: FlushDiskType, token: int) -> None:
    """Starts, commits the uncommitted ones of three batches, and sometimes saves the ledger."""
    desk = Desk(folder, flush, frame_bytes=ONE_BY_ONE)
    try:
        desk.open()
        for batch_id in range(desk.ledger.last_batch(WRITER) + 1, 3):
            assert desk.write(batch_id, token).outcome is Outcome.COMMITTED
            save_now(desk.ledger)
    finally:
        desk.crash()


def check(folder: Path, flush: FlushDiskType, token: int = 99) -> int:
    """Checks a store after a crash; returns the number of decided batches.

    Decided batches are whole, all other ones are gone; a repeated write completes them.
    """
    desk = Desk(folder, flush)
    desk.open()
    decided = desk.ledger.last_batch(WRITER) + 1
    check_visible(desk, list(range(decided)))
    for batch_id in range(3):
        outcome = desk.write(batch_id, token).outcome
        assert (outcome is Outcome.COMMITTED) == (batch_id >= decided)
    check_visible(desk, [0, 1, 2])
    desk.stop()
    desk = Desk(folder, flush)
    desk.open()
    own = Outcome.COMMITTED if decided < 3 else Outcome.ALREADY_COMMITTED
    assert desk.write(2, token).outcome is own
    check_visible(desk, [0, 1, 2])
    desk.crash()
    return decided


@modes
def test_s08_killed_at_any_call_a_batch_is_there_once_or_not_at_all(flush: FlushDiskType) -> None:
    with workshop() as folder:
        with killed_at_call(sys.maxsize) as made:
            use(folder, flush, 1)
        begun = Desk(folder, flush)
        begun.open()
        check_visible(begun, [0, 1, 2])
        begun.crash()
        outcomes = set()
        for number in range(0, len(made), KILLS_STRIDE):
            put_image({}, folder)
            with killed_at_call(number), suppress(Killed):
                use(folder, flush, 1)
            outcomes.add(check(folder, flush))
        assert outcomes == {0, 1, 2, 3}


@settings(max_examples=40)
@given(st.sampled_from(FlushDiskType), st.lists(st.integers(0, 120), min_size=1, max_size=6))
def test_s08_killed_again_and_again_a_batch_is_there_once_or_not_at_all(
    flush: FlushDiskType, kills: list[int]
) -> None:
    with workshop() as folder:
        for token, number in enumerate(kills, 1):
            with killed_at_call(number), suppress(Killed):
                use(folder, flush, token)
        check(folder, flush)


@pytest.mark.parametrize("cuts", [CUTS_QUICK, pytest.param(CUTS_TORTURE, marks=torture)])
def test_s08_after_a_power_cut_what_was_answered_is_there_once(seed: int, cuts: int) -> None:
    chance = random.Random(seed)
    for _ in range(cuts):
        with workshop() as folder:
            disk = SimulatedDisk(folder)
            answered: list[int] = []
            with (
                disk.watched(),
                suppress(Killed),
                killed_at_call(chance.randrange(160)),
            ):
                write_all(folder, answered)
            disk.cut_power(chance)
            with disk.watched():
                decided = check(folder, FlushDiskType.SYNC_FLUSH)
            assert decided >= len(answered)


def test_s08_what_is_decided_has_been_on_disk_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a power cut with the decision on disk, and none of its messages."""
    chance = random.Random(seed)

    for _ in range(8):
        with workshop() as folder:
            disk = SimulatedDisk(folder)
            desk = Desk(folder)
            with disk.watched(), monkeypatch.context() as patch:
                desk.open()
                kill_after_decision(patch)
                with suppress(Killed):
                    desk.write(0, 1)
                flush_log(desk.store)
                desk.crash()
            disk.cut_power(chance)
            with disk.watched():
                assert check(folder, FlushDiskType.SYNC_FLUSH) == 1


def write_all(folder: Path, answered: list[int]) -> None:
    """Writes three batches; `answered` gets the committed ones."""
    desk = Desk(folder, frame_bytes=ONE_BY_ONE)
    try:
        desk.open()
        for batch_id in range(3):
            desk.write(batch_id, 1)
            answered.append(batch_id)
            save_now(desk.ledger)
    finally:
        desk.crash()


def kill_after_decision(patch: pytest.MonkeyPatch) -> None:
    """Kills the process when it writes the first records to the log after a decision."""
    is_decided = False

    def kill(call: DiskCall) -> None:
        nonlocal is_decided
        if (block := call.records) is not None:
            if is_decided:
                raise Killed
            is_decided = queue_of(block) == BATCHES_QUEUE

    before_call(patch, "pwrite", LOG, kill)


def decided_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Image, int, int]:
    """Returns a store killed right after a decision, and the decision's place."""
    with monkeypatch.context() as patch:
        desk = Desk(folder)
        desk.open()
        desk.write(0, 1)
        begin = desk.store.positions().log_end
        kill_after_decision(patch)
        with suppress(Killed):
            desk.write(1, 1)
        end = desk.store.positions().log_end
        begin = max(begin, end - 400)
        desk.crash()
    return image_of(folder), begin, end


def test_s08_a_torn_decision_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with workshop() as folder:
        image, _, end = decided_only(folder, monkeypatch)
        put_image(image, folder)
        assert check(folder, FlushDiskType.SYNC_FLUSH) == 2
        name = f"commitlog/{(end - 1) // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
        for torn in range(1, 120, 7):
            position = (end - torn) % SEGMENT_BYTES

            def tear(content: bytearray, position: int = position) -> None:
                content[position:] = bytes(len(content) - position)

            put_image(altered(image, name, tear), folder)
            assert check(folder, FlushDiskType.SYNC_FLUSH) == 1


def test_s08_a_decided_topic_that_is_deleted_takes_only_its_own_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with workshop() as folder:
        decided_only(folder, monkeypatch)
        delete_between_runs(folder, OTHER.topic)
        desk = Desk(folder)
        desk.open()
        assert desk.ledger.last_batch(WRITER) == 1
        assert read_bodies(desk.store, OTHER) == []
        assert len(read_bodies(desk.store, QUEUE)) == 12
        desk.crash()


def test_s08_the_ledger_outlives_the_segments_of_its_decisions() -> None:
    with workshop() as folder:
        desk = Desk(folder)
        desk.open()
        desk.write(0, 1)
        save_now(desk.ledger)
        decided_end = desk.store.positions().log_end
        while desk.store.positions().log_begin <= decided_end:
            send(desk.store, [b"x" * 1000])
            flush_log(desk.store)
            if desk.store.positions().log_end > 4 * SEGMENT_BYTES:
                remove_oldest_segment(desk.store)
        desk.crash()
        desk = Desk(folder)
        desk.open()
        assert desk.commit(0, 2).outcome is Outcome.ALREADY_COMMITTED
        assert desk.commit(1, 2).outcome is Outcome.COMMITTED
        # The newer decision is known from the log alone.
        desk.crash()
        desk = Desk(folder)
        desk.open()
        assert desk.ledger.last_batch(WRITER) == 1
        desk.crash()


def test_s08_the_ledgers_file_knows_nothing_that_a_power_cut_can_take_back() -> None:
    with workshop() as folder:
        desk = Desk(folder, FlushDiskType.ASYNC_FLUSH)
        desk.open()
        desk.write(0, 1)
        save_now(desk.ledger)
        assert known_last_batch(folder) == NO_BATCH
        desk.store.flushed(desk.store.plan_flush())
        desk.write(1, 1)
        save_now(desk.ledger)
        desk.crash()
        assert known_last_batch(folder) == 0


def known_last_batch(folder: Path) -> int:
    """Returns the last batch of the ledger's file."""
    known = Desk(folder, FlushDiskType.ASYNC_FLUSH)
    known.ledger.load()
    last: int = known.ledger.last_batch(WRITER)
    known.staging.close()
    return last


def test_s08_a_store_with_batches_has_no_fault_and_exports_each_message_once(
    tmp_path: Path,
) -> None:
    with workshop() as folder:
        desk = Desk(folder)
        desk.open()
        desk.stage(0, 8, 5, (QUEUE, [b"never"]))
        desk.write(0, 1)
        desk.stage(1, 9, 5, (QUEUE, [b"not yet"]))
        desk.stop()
        sizes = StoreSizes.of(folder)
        with StoreReadLock(folder):
            checking = StoreCheck(folder, sizes, IndexFormat(8, 16))
            assert [str(finding) for finding in checking.run()] == []
        wanted = ExportRequest([QUEUE.topic], tmp_path / "out", FileFormat.ARROW)
        with StoreExport(folder, sizes, wanted) as export:
            assert export.run().message_count == 6


def test_s08_an_idle_writer_is_forgotten_but_not_by_a_clock_that_jumps() -> None:
    with workshop() as folder:
        desk = Desk(folder)
        desk.open()
        desk.write(0, 1)
        desk.clock.jump(WEEK_MS + 1)
        save_now(desk.ledger)
        desk.clock.jump(-WEEK_MS)
        desk.clock.advance(CONFIRM_MS)
        save_now(desk.ledger)
        assert desk.ledger.last_batch(WRITER) == 0
        desk.clock.advance(WEEK_MS)
        save_now(desk.ledger)
        assert desk.ledger.last_batch(WRITER) == 0
        desk.clock.advance(CONFIRM_MS)
        save_now(desk.ledger)
        assert desk.ledger.last_batch(WRITER) == NO_BATCH
        desk.crash()
