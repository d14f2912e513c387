"""Harmed staging files, or a full disk, at any moment around a decision.

A model has the expected messages. Of a refused batch it has none; of a decided one it has all that
was appended before the harm or is still readable. Each store has many batches, and all its messages
are compared after each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from rocketpy_broker.errors import StagedIllegalError, StoreClosedError
from rocketpy_broker.services.batches.log import StagedTask
from rocketpy_broker.services.batches.outcome import BatchState, Outcome
from rocketpy_broker.services.config_files.saver import save_now
from rocketpy_broker.store.config import STAGING_FRAME_BYTES, FlushDiskType
from rocketpy_broker.store.values import QueueKey
from tests.faults.batches.batch_use import ONE_BY_ONE, WRITER, Desk, limited_room
from tests.faults.batches.harm import FullDisk, Harm, do_harm
from tests.faults.images import read_bodies, workshop
from tests.faults.kills.test_f10_killed_recovery import Killed
from tests.support.store.messages import OTHER, QUEUE

ROUNDS_QUICK = 20
ROUNDS_TORTURE = 3_000
ROUNDS_PER_STORE = 10
# About the number of calls of a batch.
CALLS = 120
REFUSALS = (StagedIllegalError, StoreClosedError)
Block = tuple[QueueKey, list[bytes]]

torture = (pytest.mark.torture, pytest.mark.timeout(7200))
rounds_of = pytest.mark.parametrize(
    "rounds", [ROUNDS_QUICK, pytest.param(ROUNDS_TORTURE, marks=torture)]
)


@dataclass
class StagedFile:
    """The file of an attempt, and the contents of its frames in order."""

    path: Path
    frames: list[Block]


@dataclass
class Trial:
    """One store over many batches; `shown` has its expected messages."""

    folder: Path
    dice: random.Random
    shown: dict[QueueKey, list[bytes]] = field(default_factory=lambda: {QUEUE: [], OTHER: []})
    batch_id: int = -1
    token: int = 0
    outcomes: set[Outcome] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Starts, with frames of one record or of many."""
        self.is_one_by_one = self.dice.random() < 0.5
        frame_bytes = ONE_BY_ONE if self.is_one_by_one else STAGING_FRAME_BYTES
        flush = self.dice.choice(list(FlushDiskType))
        self.desk = Desk(self.folder, flush, frame_bytes=frame_bytes)
        self.desk.open()

    def let_go(self) -> None:
        """Stops, or releases everything as a kill does."""
        self.dice.choice((Desk.stop, Desk.crash))(self.desk)

    # --- A batch ---

    def begin_batch(self) -> None:
        """Starts a new batch, of two tasks or more."""
        self.batch_id += 1
        self.begin_job()

    def begin_job(self) -> None:
        """Starts another job for the batch, with messages of its own."""
        self.token += 1
        self.work = [list(self._blocks(task)) for task in range(self.dice.randint(2, 4))]

    def _blocks(self, task: int) -> Iterator[Block]:
        for block in range(self.dice.randint(1, 4)):
            name = b"%d-%d-%d-%d" % (self.batch_id, self.token, task, block)
            bodies = [b"%b-%d" % (name, number) for number in range(self.dice.randint(1, 5))]
            yield self.dice.choice((QUEUE, OTHER)), bodies

    def stage(self) -> None:
        """Stages the job's tasks and notes their files. Raises StoreClosedError."""
        self.tasks: list[StagedTask] = []
        self.files: list[StagedFile] = []
        for number, blocks in enumerate(self.work):
            task = self.desk.stage(self.batch_id, self.token, number, *blocks)
            path = self.desk.path_of(self.batch_id, self.token, number)
            self.tasks.append(task)
            self.files.append(StagedFile(path, self._frames(blocks)))

    def _frames(self, blocks: list[Block]) -> list[Block]:
        if not self.is_one_by_one:
            return blocks
        return [(queue, [body]) for queue, bodies in blocks for body in bodies]

    def harm(self) -> list[bool]:
        """Harms one of the files; returns for each frame of the batch if it is still readable."""
        which, other = self.dice.sample(range(len(self.files)), 2)
        harm = self.dice.choice(list(Harm))
        readable = [[True] * len(file.frames) for file in self.files]
        path = self.files[which].path
        readable[which] = do_harm(harm, path, self.files[other].path, self.dice)
        return [is_readable for file in readable for is_readable in file]

    @property
    def frames(self) -> list[Block]:
        return [frame for file in self.files for frame in file.frames]

    def commit(self) -> BatchState:
        """Commits the batch."""
        return self.desk.commit(self.batch_id, self.token, *self.tasks)

    # --- Checks ---

    def check_refused(self) -> None:
        """Asserts a named refusal without messages, and that another job's are there once."""
        with pytest.raises(REFUSALS) as refused:
            self.commit()
        self.check_nothing_shown(refused.value, *self.files)

    def check_nothing_shown(self, error: Exception, *files: StagedFile) -> None:
        """Asserts a named error without messages, and that another job's messages are there."""
        named = [file.path.name for file in files]
        assert any(name in str(error) for name in [*named, "nothing is staged for task"])
        assert self.desk.query(self.batch_id, self.token).outcome is Outcome.NOT_COMMITTED
        self.check_shown()
        self.begin_job()
        self.stage()
        self.check_told(self.commit(), [True] * len(self.frames))

    def check_told(self, state: BatchState, stored: list[bool]) -> None:
        """Asserts that answer and messages of the batch are the stored part."""
        count = 0
        for (queue, bodies), is_stored in zip(self.frames, stored, strict=True):
            if is_stored:
                self.shown[queue] += bodies
                count += len(bodies)
        total = sum(len(bodies) for _, bodies in self.frames)
        outcome = Outcome.COMMITTED if count == total else Outcome.INCOMPLETE
        expected = BatchState(outcome, self.batch_id, count, total)
        is_named = f"batch {self.batch_id} of writer {WRITER!r} shows {count} of" in state.hindrance
        assert is_named == (outcome is Outcome.INCOMPLETE)
        expected = replace(expected, hindrance=state.hindrance)
        assert state == expected
        assert self.commit() == expected
        self.check_shown()
        if self.dice.random() < 0.5:
            save_now(self.desk.ledger)
        if self.dice.random() < 0.5:
            self.let_go()
            self.open()
        assert self.commit() == expected
        self.check_shown()
        self.outcomes.add(outcome)

    def check_shown(self) -> None:
        for queue, bodies in self.shown.items():
            assert read_bodies(self.desk.store, queue) == bodies, queue

    # --- Rounds ---

    def harm_before_the_decision(self) -> None:
        """Harms a file after the last block, with a restart before it, after it, or none."""
        self.begin_batch()
        self.stage()
        moment = self.dice.choice(("no restart", "restart first", "restart then"))
        if moment == "restart first":
            self.let_go()
            self.open()
        with self.times_moved(1):
            self.harm()
        if moment == "restart then":
            self.let_go()
            self.open()
        self.check_refused()

    @contextmanager
    def times_moved(self, by_ns: int) -> Iterator[None]:
        """Advances the times of changed files by `by_ns`, as file clocks are coarse."""
        times = {file.path: file.path.stat().st_mtime_ns for file in self.files}
        yield
        for path, time_ns in times.items():
            with suppress(FileNotFoundError):
                os.utime(path, ns=(time_ns, time_ns + by_ns))

    def harm_while_it_is_staged(self) -> None:
        """Harms a file after some blocks of a task, which then continues; a start repairs it."""
        self.begin_batch()
        which, other = self.dice.sample(range(len(self.work)), 2)
        begun = self.work[which][: self.dice.randint(1, len(self.work[which]))]
        self.desk.stage(self.batch_id, self.token, other, *self.work[other])
        self.desk.stage(self.batch_id, self.token, which, *begun, ends=False)
        self.files = [
            StagedFile(self.desk.path_of(self.batch_id, self.token, task), [])
            for task in (which, other)
        ]
        harmed = self.files[0]
        with self.times_moved(1):
            do_harm(self.dice.choice(list(Harm)), harmed.path, self.files[1].path, self.dice)
        if self.dice.random() < 0.5:
            self.let_go()
            self.open()
        try:
            self.stage()
            state = self.commit()
        except REFUSALS as error:
            self.check_nothing_shown(error, harmed)
        else:
            self.check_told(state, [True] * len(self.frames))

    def harm_without_a_trace(self) -> None:
        """Harms a file and keeps its time, as failing disks do; a decided batch meets the harm."""
        self.begin_batch()
        self.stage()
        with self.times_moved(0):
            readable = self.harm()
        if all(file.path.exists() for file in self.files):
            self.check_told(self.commit(), readable)
        else:
            self.check_refused()

    def harm_after_the_decision(self) -> None:
        """Harms a file with some frames in the log, then continues or restarts."""
        self.begin_batch()
        self.stage()
        is_killed = self.dice.random() < 0.5
        readable: list[bool] = []
        appended = 0
        with limited_room() as room:

            def meanwhile() -> None:
                nonlocal appended
                if not readable:
                    readable.extend(self.harm())
                    # The first record is the decision's.
                    appended = room.record_count - 1
                room.left = None
                if is_killed:
                    raise Killed

            room.left = 1 + self.dice.randrange(len(self.frames) + 1)
            with suppress(Killed):
                state = self.desk.commit_held_up(self.batch_id, self.token, self.tasks, meanwhile)
            room.left = None
            if is_killed:
                self.desk.crash()
                self.open()
                state = self.desk.query(self.batch_id, self.token)
        readable = readable or [True] * len(self.frames)
        ends = np.cumsum([len(bodies) for _, bodies in self.frames])
        self.check_told(state, ((ends <= appended) | readable).tolist())

    def full_disk(self) -> None:
        """Fills the disk at any call, until an error is reported."""
        self.begin_batch()
        disk = FullDisk()
        with disk.watched():
            disk.calls_left = self.dice.randrange(CALLS)
            try:
                self.stage()
            except StoreClosedError as error:
                self.check_nothing_done(disk, error)
                if self.dice.random() < 0.5:
                    self.begin_job()
                self.stage()
            if self.dice.random() < 0.5:
                # A few of the calls are the decision's.
                disk.calls_left = self.dice.choice((0, 1, self.dice.randrange(CALLS)))
            try:
                state = self.commit_on(disk)
            except StoreClosedError as error:
                self.check_nothing_done(disk, error)
                state = self.commit()
            disk.calls_left = None
            self.check_told(state, [True] * len(self.frames))

    def check_nothing_done(self, disk: FullDisk, error: StoreClosedError) -> None:
        """Asserts an error that names the cause, without messages; frees the disk."""
        assert "No space left on device" in str(error)
        assert self.desk.query(self.batch_id, self.token).outcome is Outcome.NOT_COMMITTED
        self.check_shown()
        disk.calls_left = None

    def commit_on(self, disk: FullDisk) -> BatchState:
        """Commits the batch; if it is held up, frees the disk or kills the store.

        A store is killed anyway after a failed flush: it takes nothing more until a restart.
        """
        is_killed = self.dice.random() < 0.5

        def meanwhile() -> None:
            disk.calls_left = None
            if is_killed or self.desk.store.is_sealed:
                raise Killed

        try:
            return self.desk.commit_held_up(self.batch_id, self.token, self.tasks, meanwhile)
        except Killed:
            self.desk.crash()
            self.open()
            return self.desk.query(self.batch_id, self.token)


def play(rounds: int, seed: int, what: Callable[[Trial], None]) -> set[Outcome]:
    """Plays rounds with new stores; returns their outcomes."""
    dice = random.Random(seed)
    outcomes: set[Outcome] = set()
    for _ in range(rounds // ROUNDS_PER_STORE):
        with workshop() as folder:
            trial = Trial(folder, dice)
            for _ in range(ROUNDS_PER_STORE):
                what(trial)
            trial.desk.stop()
            outcomes |= trial.outcomes
    return outcomes


@rounds_of
def test_s10_harm_before_the_decision_fails_by_name_and_shows_nothing(
    seed: int, rounds: int
) -> None:
    assert play(rounds, seed, Trial.harm_before_the_decision) == {Outcome.COMMITTED}


@rounds_of
def test_s10_harm_while_it_is_staged_is_mended_or_fails_by_name(seed: int, rounds: int) -> None:
    assert play(rounds, seed, Trial.harm_while_it_is_staged) == {Outcome.COMMITTED}


@rounds_of
def test_s10_harm_after_the_decision_costs_what_it_hit_and_is_told(seed: int, rounds: int) -> None:
    assert Outcome.INCOMPLETE in play(rounds, seed, Trial.harm_after_the_decision)


@rounds_of
def test_s10_harm_that_leaves_no_trace_costs_what_it_hit_and_is_told(
    seed: int, rounds: int
) -> None:
    assert Outcome.INCOMPLETE in play(rounds, seed, Trial.harm_without_a_trace)


@rounds_of
def test_s10_a_full_disk_at_any_moment_delays_a_batch_or_refuses_it(seed: int, rounds: int) -> None:
    assert play(rounds, seed, Trial.full_disk) == {Outcome.COMMITTED}
