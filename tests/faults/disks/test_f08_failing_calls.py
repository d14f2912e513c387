"""Failing system calls: the n-th of a kind, for every n of a script of the store."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.histories.recorder import Recorder
from tests.faults.workers import disk_programs
from tests.faults.workers import traces as tracing
from tests.faults.workers.store_use import SMALL_SIZES
from tests.faults.workers.traces import Call
from tests.faults.workers.zygote import Event, Zygote

SCRIPT_SEED = 8
CALLS = ("openat", "mkdir", "pwrite64", "fallocate", "fsync", "fdatasync", "rename", "unlink")
FLUSHES = ("fsync", "fdatasync")
# Files of log, queues and index. A folder may be flushed again, as its change is repeated.
WRITTEN_IN_PLACE = re.compile(r"/(commitlog|consumequeue|index)/.*\d{17,20}$")
ERRORS = ("EIO", "ENOSPC", "EINTR")
# Calls per kind and error, besides the first and the last one.
BETWEEN_QUICK = 1

NO_STRACE = tracing.missing()
needs_strace = pytest.mark.skipif(NO_STRACE is not None, reason=str(NO_STRACE))


def run_script(
    zygote: Zygote, folder: Path, output: Path, inject: str | None
) -> tuple[Recorder, list[Event]]:
    """Runs the script; returns its words, as a record and in order."""
    recorder = Recorder()
    events: list[Event] = []
    worker = zygote.start(disk_programs.script, folder=str(folder), seed=SCRIPT_SEED)
    with tracing.traced(worker.pid, ",".join(CALLS), inject, output):
        worker.go()
        events += worker.events()
        status = worker.wait()
    recorder.take(events)
    assert status == 0
    return recorder, events


@pytest.fixture(scope="module")
def counts(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """Returns the counts of each call that the script makes without failures."""
    folder = tmp_path_factory.mktemp("counted")
    output = folder / "trace"
    recorder, _ = run_script(zygote, folder / "store", output, None)
    assert [event for event in recorder.others if event[0] == "failed"] == []
    found = Counter(call.name for call in tracing.calls_in(output))
    assert sum(found.values()) > 200
    return found


def assert_no_flush_is_tried_again(calls: list[Call]) -> None:
    """Asserts that no file of log, queue or index is flushed again after a failed flush."""
    failed: set[str] = set()
    for call in calls:
        if "O_EXCL" in call.arguments or "O_TRUNC" in call.arguments:
            failed.discard(call.opened)  # Another file, or new content, of that name.
        if call.name in FLUSHES and WRITTEN_IN_PLACE.search(call.path):
            assert call.path not in failed, f"{call.path} was flushed again after a failed flush"
            if call.injected and call.error != "EINTR":
                failed.add(call.path)


def assert_no_ack_after_failed_flush(events: list[Event]) -> None:
    """Asserts a read-only store without acknowledgements after a failed flush of the log."""
    said = [event[0] for event in events]
    if "flush failed" in said:
        behind = events[said.index("flush failed") :]
        assert "ack" not in [event[0] for event in behind]
        reasons = [event[2] for event in behind if event[:2] == ["failed", "send"]]
        assert all("read-only" in reason for reason in reasons)


def run_with_fault(
    zygote: Zygote, folder: Path, tmp_path: Path, name: str, error: str, number: int
) -> None:
    """Runs the script with one fault, and checks it then and after a restart."""
    output = tmp_path / "trace"
    recorder, events = run_script(zygote, folder, output, f"{name}:error={error}:when={number}")
    calls = tracing.calls_in(output)
    assert [call.name for call in calls if call.injected] == [name]
    assert_no_ack_after_failed_flush(events)
    assert_no_flush_is_tried_again(calls)
    recorder.read_all(zygote, folder, SMALL_SIZES)
    recorder.history.check(tmp_path, SCRIPT_SEED)


@needs_strace
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CALLS)
def test_f8_a_failing_call_costs_nothing_that_was_acknowledged(
    zygote: Zygote,
    ram_folder: Path,
    tmp_path: Path,
    seed: int,
    counts: Counter[str],
    name: str,
    error: str,
) -> None:
    count = counts[name]
    assert count > 0, f"the script makes no {name}"
    plan = random.Random(seed)
    for number in sorted({1, count, *(plan.randint(1, count) for _ in range(BETWEEN_QUICK))}):
        run_with_fault(zygote, ram_folder / str(number), tmp_path, name, error, number)


@needs_strace
@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CALLS)
def test_f8_every_single_call_may_fail(
    zygote: Zygote,
    ram_folder: Path,
    tmp_path: Path,
    counts: Counter[str],
    name: str,
    error: str,
) -> None:
    for number in range(1, counts[name] + 1):
        run_with_fault(zygote, ram_folder / str(number), tmp_path, name, error, number)
