"""Power cuts: SYNC_FLUSH loses nothing, ASYNC_FLUSH only an unflushed tail."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy_broker.store.config import FlushDiskType
from tests.faults.disks.loop_disk import LOG_FLUSH, NO_LOG_FLUSH, LoopDisk, opened
from tests.faults.histories.history import FINAL, History, Outcome, Send
from tests.faults.histories.recorder import Recorder
from tests.faults.workers.zygote import Worker, Zygote

CUTS_QUICK = 100
CUTS_TORTURE = 1_000
# After these a new store is started, since the disk is small.
CUTS_PER_STORE = 20
LOAD_SECONDS_MAX = 0.08
# The share of cuts that wait for a flush of the log.
AFTER_FLUSH = 0.5

pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    """Yields a disk with a power switch."""
    with opened(tmp_path) as made:
        yield made


@pytest.mark.parametrize("cuts", [CUTS_QUICK, pytest.param(CUTS_TORTURE, marks=torture)])
def test_f2_a_power_cut_takes_nothing_that_was_promised(
    zygote: Zygote, disk: LoopDisk, tmp_path: Path, seed: int, cuts: int
) -> None:
    plan = random.Random(seed)
    flushes = 0
    recorder = Recorder()
    folder = disk.mount_point / "store0"
    for number in range(cuts):
        if number % CUTS_PER_STORE == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder = disk.mount_point / f"store{number}"
            recorder = Recorder()
        recorder = Recorder(_what_is_there(recorder.history), config=recorder.config)
        _load_and_cut(zygote, recorder, disk, folder, plan, f"s{number}")
        recorder.read_all(zygote, folder)
        if recorder.flush is FlushDiskType.ASYNC_FLUSH:
            _assert_lost_is_a_tail(recorder.history)
            recorder.only_durable_is_promised()
        recorder.history.check(tmp_path, seed)
        _assert_config_is_old_or_new(recorder)
        flushes += recorder.durable_end > 0
    assert flushes > cuts // 4, "the power went before anything was flushed"


def _load_and_cut(
    zygote: Zygote, recorder: Recorder, disk: LoopDisk, folder: Path, plan: random.Random, name: str
) -> None:
    """Runs a writer until a power cut, then turns the power on again."""
    worker = recorder.load(zygote, folder, plan, name)
    if plan.random() < 0.9:
        worker.expect("open")
        if plan.random() < AFTER_FLUSH:
            _take_until_flushed(recorder, worker)
    recorder.take(worker.events(plan.uniform(0, LOAD_SECONDS_MAX)))
    disk.cut(LOG_FLUSH if plan.random() < 0.2 else NO_LOG_FLUSH)
    # The worker may run on for a moment; what it reports must stay true.
    recorder.take(worker.events(plan.uniform(0, 0.01)))
    recorder.kill(worker)
    disk.power_on()


def _take_until_flushed(recorder: Recorder, worker: Worker) -> None:
    """Waits for the first flush of the log, so that many cuts come after one."""
    for event in worker.events():
        recorder.take_one(event)
        if event[0] in {"durable", "closed", "failed"}:
            return


def _assert_lost_is_a_tail(history: History) -> None:
    """Asserts that in every queue all present messages are before all missing ones."""
    there = {d.message_id for d in history.deliveries if d.reader == FINAL}
    ends: dict[tuple[str, int], int] = {}
    for delivery in history.deliveries:
        if delivery.reader == FINAL:
            ends[delivery.topic, delivery.queue_id] = delivery.queue_offset + 1
    for send in history.sends.values():
        if send.outcome is Outcome.ACKED and send.message_id not in there:
            assert send.queue_offset is not None
            assert send.queue_offset >= ends.get((send.topic, send.queue_id), 0), send


def _assert_config_is_old_or_new(recorder: Recorder) -> None:
    """Asserts that the file holds at least the saved number, and at most the one being saved."""
    [found] = [event[1] for event in recorder.others if event[0] == "config"]
    saved = [event[1] for event in recorder.others if event[0] == "saved"]
    saving = [event[1] for event in recorder.others if event[0] == "saving"]
    lowest = max(saved, default=recorder.config)
    assert lowest <= found <= max(saving, default=lowest)
    recorder.config = found


def _what_is_there(history: History) -> History:
    """Returns a history in which all found messages were acknowledged long ago."""
    known = History()
    for found in history.deliveries:
        if found.reader == FINAL:
            known.sends[found.message_id] = Send(
                found.message_id,
                found.body_hash,
                "before",
                found.topic,
                found.queue_id,
                begun=-1,
                outcome=Outcome.ACKED,
                ended=-1,
                queue_offset=found.queue_offset,
            )
    return known
