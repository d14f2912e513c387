"""Power cuts after which each page written since its flush may be old or new."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.histories.history import History
from tests.faults.histories.recorder import Recorder
from tests.faults.workers import programs
from tests.faults.workers.store_use import SMALL_SIZES, TAGS
from tests.faults.workers.zygote import Zygote

HYBRIDS_QUICK = 500
HYBRIDS_TORTURE = 10_000
# The number of hybrids of one run of a store.
HYBRIDS_PER_RUN = 25
PAGE_BYTES = (512, 4096)
TORN_SEED = 1
# Name endings of files that are never written in place.
REPLACED_WHOLE = (".json", ".json.bak", "lock", "abort")

# A flush of the log makes these durable: records with their checksums.
OF_THE_LOG = ("commitlog/", "rocketpy/checksums/")

Files = dict[str, bytes]
pytestmark = pytest.mark.slow
torture = (pytest.mark.torture, pytest.mark.timeout(7200))


@dataclass(frozen=True)
class Run:
    """A run of a store: its files after the last flush, and at the crash."""

    recorder: Recorder = field(default_factory=Recorder)
    flushed: Files = field(default_factory=dict)
    crashed: Files = field(default_factory=dict)


def files_below(folder: Path) -> Files:
    """Returns the contents of all files."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def run_until_crash(zygote: Zygote, folder: Path, plan: random.Random) -> Run:
    """Runs a store until its crash; queue files are flushed before the log's files."""
    run = Run()
    worker = zygote.start(
        programs.stages, folder=str(folder), seed=plan.getrandbits(32), sizes=SMALL_SIZES
    )
    for event in worker.events():
        run.recorder.take_one(event)
        match event:
            case ["derived files flushed"]:
                run.flushed.update(files_below(folder))
                worker.go()
            case ["log flushed"]:
                now = files_below(folder)
                run.flushed.update({name: now[name] for name in now if name.startswith(OF_THE_LOG)})
                worker.go()
            case ["crash"]:
                run.crashed.update(files_below(folder))
                worker.kill()
    worker.wait()
    return run


def old_version(run: Run, path: str) -> bytes:
    """Returns a file's content without all pages written since its last flush."""
    new = run.crashed[path]
    return new if path.endswith(REPLACED_WHOLE) else run.flushed.get(path, bytes(len(new)))


def hybrid_of(run: Run, plan: random.Random) -> Files:
    """Returns a possible state of the disk: any page that is written in place may be old."""
    page_bytes = plan.choice(PAGE_BYTES)
    share_new = plan.choice([0.0, 0.1, 0.5, 0.9])
    hybrid: Files = {}
    for path, new in run.crashed.items():
        old = old_version(run, path)
        pages = [
            (new if plan.random() < share_new else old)[start : start + page_bytes]
            for start in range(0, len(new) if new != old else 0, page_bytes)
        ]
        hybrid[path] = b"".join(pages) or new
    return hybrid


@pytest.mark.parametrize("hybrids", [HYBRIDS_QUICK, pytest.param(HYBRIDS_TORTURE, marks=torture)])
def test_f4_torn_pages_never_make_a_wrong_message_and_take_nothing_that_was_flushed(
    zygote: Zygote, ram_folder: Path, tmp_path: Path, seed: int, hybrids: int
) -> None:
    plan = random.Random(seed)
    torn = 0
    for number in range(hybrids // HYBRIDS_PER_RUN):
        run = run_until_crash(zygote, ram_folder / f"run{number}", plan)
        hybrids_of_run = [hybrid_of(run, plan) for _ in range(HYBRIDS_PER_RUN)]
        torn += sum(hybrid not in (run.crashed, run.flushed) for hybrid in hybrids_of_run)
        _judge(zygote, run, hybrids_of_run, ram_folder / f"hybrids{number}", tmp_path, seed)
    assert torn > hybrids // 4, "hardly a page was torn"


def test_f4_a_record_whose_last_page_is_missing_is_not_delivered(
    zygote: Zygote, ram_folder: Path, tmp_path: Path
) -> None:
    run = run_until_crash(zygote, ram_folder / "run", random.Random(TORN_SEED))
    files = {path: old_version(run, path) for path in run.crashed}
    last = max(path for path in run.crashed if path.startswith("commitlog/"))
    whole = run.crashed[last]
    assert run.flushed.get(last) != whole, "nothing was written since the last flush"
    # The record ends with its properties, which are longer than the part cut off here.
    end = len(whole.rstrip(b"\0")) - len(TAGS) // 2
    files |= {path: run.crashed[path] for path in files if path.startswith("commitlog/")}
    files[last] = whole[:end].ljust(len(whole), b"\0")
    _judge(zygote, run, [files], ram_folder / "torn", tmp_path, TORN_SEED)


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _judge(
    zygote: Zygote, run: Run, hybrids: list[Files], folder: Path, tmp_path: Path, seed: int
) -> None:
    """Judges the messages of each state of the disk; one worker opens them all."""
    folders = [folder / str(number) for number in range(len(hybrids))]
    for each, hybrid in zip(folders, hybrids, strict=True):
        _write(each, hybrid)
    worker = zygote.start(
        programs.go_on, folders=list(map(str, folders)), seed=seed, sizes=SMALL_SIZES
    )
    events = worker.events()
    for _ in folders:
        history = run.recorder.history
        recorder = Recorder(History(dict(history.sends), list(history.deliveries)))
        recorder.take(itertools.takewhile(lambda event: event != ["closed"], events))
        recorder.history.check(tmp_path, seed)
    assert worker.wait() == 0
    shutil.rmtree(folder)
