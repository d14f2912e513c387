"""Jobs that stage batches, with the present job of each writer.

A writer has one pending batch at a time, and one job for it. So a new job supersedes the writer's
other jobs for that batch and for older ones. Their drivers have ended, or compete with this one,
and only one may commit. Blocks from a discarded job are refused as long as the table remembers that
job.

A job is also discarded after `idle_ms_max` without a call; an open stream counts as a call. A job
without files ends with its streams. One connection may start CONNECTION_JOBS_MAX jobs.

The state is in memory. After a restart the staging files list the attempts. Discarded jobs are then
recognised only by their missing files.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rocketpy_broker.errors import ParameterIllegalError, StagedIllegalError, TooManyJobsError
from rocketpy_broker.runtime import scheduler
from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.runtime.shares import Shares
from rocketpy_broker.store.staging.area import BatchJob, StagedAttempt

WRITER_ID_CHARACTERS_MAX = 255
DISCARDED_MAX = 10_000
# Names of jobs that ended without files: a newer job of the writer still supersedes them.
ENDED_MAX = 10_000
JOBS_MAX = 100_000
# Jobs started by one connection.
CONNECTION_JOBS_MAX = 10_000


@dataclass(eq=False, slots=True)
class Attempt:
    """A staged attempt; the lock protects its file."""

    staged: StagedAttempt
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_gone: bool = False


@dataclass(eq=False, slots=True)
class Job:
    """A job's attempts by task and task token.

    `holds` counts open streams and a running commit; `bytes` is the disk space of all attempts.
    `connection` started the job.
    """

    name: BatchJob
    used_ms: float
    connection: str = ""
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    holds: int = 0
    is_committing: bool = False
    bytes: int = 0


class JobTable:
    """All jobs, in the order of their last use."""

    def __init__(self, clock: Clock, idle_ms_max: int) -> None:
        self._clock = clock
        self._idle_ms_max = idle_ms_max
        self._jobs: OrderedDict[BatchJob, Job] = OrderedDict()
        self._by_writer: dict[str, set[BatchJob]] = {}
        self._shares = Shares(CONNECTION_JOBS_MAX)
        self._discarded: OrderedDict[BatchJob, str] = OrderedDict()
        self._ended: OrderedDict[BatchJob, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[BatchJob]:
        return iter(list(self._jobs))

    def find(self, name: BatchJob) -> Job | None:
        """Returns the job; None if the table has none of that name."""
        return self._jobs.get(name)

    def check_wanted(self, name: BatchJob) -> None:
        """Raises StagedIllegalError for a discarded job."""
        reason = self._discarded.get(name)
        if reason is not None:
            raise StagedIllegalError(
                f"the blocks that this job staged for batch {name.batch_id} of writer "
                f"{name.writer_id!r} were removed: {reason}"
            )

    def use(self, name: BatchJob) -> Job:
        """Returns the job and sets its last use to now.

        Raises StagedIllegalError for a discarded job, TooManyJobsError for a new one at a limit.
        """
        self.check_wanted(name)
        job = self._jobs.get(name)
        if job is None:
            connection = scheduler.connection.get()
            if len(self._jobs) >= JOBS_MAX:
                raise TooManyJobsError(JOBS_MAX)
            if not self._shares.has_space(connection):
                raise TooManyJobsError(self._shares.connection_max, "of this connection ")
            job = self._jobs[name] = Job(name, 0, connection)
            self._shares.change(connection, 1)
            self._ended.pop(name, None)
            self._by_writer.setdefault(name.writer_id, set()).add(name)
        job.used_ms = self._clock.monotonic_ms()
        self._jobs.move_to_end(name)
        return job

    def superseded_jobs(self, name: BatchJob) -> list[BatchJob]:
        """Returns the jobs that `name` supersedes: its writer's jobs for this batch or older ones.

        `name` itself and jobs that are committing are left out.
        """
        names = self._by_writer.get(name.writer_id, ())
        return [
            other
            for other in names
            if other != name
            and other.batch_id <= name.batch_id
            and not (other in self._jobs and self._jobs[other].is_committing)
        ]

    def up_to(self, writer_id: str, batch_id: int) -> list[BatchJob]:
        """Returns the writer's jobs for this batch and older ones."""
        names = self._by_writer.get(writer_id, ())
        return [name for name in names if name.batch_id <= batch_id]

    def idle(self) -> Iterator[BatchJob]:
        """Yields jobs that were not used for `idle_ms_max`."""
        for name, job in list(self._jobs.items()):
            if self._idle_ms(job) < self._idle_ms_max:
                return
            if job.holds:
                self.use(name)
            else:
                yield name

    def is_idle(self, name: BatchJob) -> bool:
        """True if a job was not used for `idle_ms_max`."""
        job = self._jobs.get(name)
        return job is not None and not job.holds and self._idle_ms(job) >= self._idle_ms_max

    def _idle_ms(self, job: Job) -> float:
        return self._clock.monotonic_ms() - job.used_ms

    def discard(self, name: BatchJob, reason: str) -> list[Attempt]:
        """Forgets a job and returns its attempts; their files may be removed."""
        self._discarded[name] = reason
        while len(self._discarded) > DISCARDED_MAX:
            self._discarded.popitem(last=False)
        job = self._jobs.get(name)
        if job is not None:
            self._drop(job)
        if job is not None or name in self._ended:
            self._forget(name)
        return [] if job is None else list(retire(job.attempts.values()))

    @contextmanager
    def hold(self) -> Iterator[JobHold]:
        """Yields a hold on a job; it ends with the block."""
        hold = JobHold(self)
        try:
            yield hold
        finally:
            hold.release()

    def released(self, job: Job) -> None:
        """Forgets a job that has no files and no streams; its next call starts it again."""
        if not (job.holds or job.attempts) and self._jobs.get(job.name) is job:
            self._drop(job)
            self._ended[job.name] = None
            if len(self._ended) > ENDED_MAX:
                self._forget(next(iter(self._ended)))

    def _drop(self, job: Job) -> None:
        del self._jobs[job.name]
        self._shares.change(job.connection, -1)

    def _forget(self, name: BatchJob) -> None:
        self._ended.pop(name, None)
        names = self._by_writer[name.writer_id]
        names.discard(name)
        if not names:
            del self._by_writer[name.writer_id]


class JobHold:
    """The job that a stream or a commit works on; that job is not idle."""

    def __init__(self, table: JobTable) -> None:
        self._table = table
        self._job: Job | None = None

    def use(self, name: BatchJob) -> Job:
        """Returns the job, as `JobTable.use` does, and releases the previous one."""
        job = self._table.use(name)
        if job is not self._job:
            job.holds += 1
            self.release()
            self._job = job
        return job

    def release(self) -> None:
        """Ends the hold; a job without files ends with its last hold."""
        if self._job is not None:
            self._job.holds -= 1
            self._table.released(self._job)
            self._job = None


def retire(attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    """Yields the attempts after marking them as gone, so that no task starts work on them."""
    for attempt in attempts:
        attempt.is_gone = True
        yield attempt


def check_job(name: BatchJob) -> None:
    """Raises ParameterIllegalError for an illegal name."""
    if not 1 <= len(name.writer_id) <= WRITER_ID_CHARACTERS_MAX:
        accepted = f"1 to {WRITER_ID_CHARACTERS_MAX} characters"
        raise ParameterIllegalError("writer_id", name.writer_id, accepted)
    if name.batch_id < 0:
        raise ParameterIllegalError("batch_id", name.batch_id, "0 or more")
    if name.token == 0:
        raise ParameterIllegalError("job_token", name.token, "any number but 0")
