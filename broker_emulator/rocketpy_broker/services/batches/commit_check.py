"""Check of a commit against the staged attempts.

Each named attempt must exist, have ended and have the counts of the commit. It must be on disk as
it was written. Its topics must be the same ones as when it was staged. Files written before the
start, or by another process since, are read whole.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketpy_broker.errors import StagedIllegalError
from rocketpy_broker.services.batches.jobs import Attempt, Job
from rocketpy_broker.services.batches.log import StagedTask
from rocketpy_broker.services.batches.staged_files import StagedFiles
from rocketpy_broker.services.batches.staging_service import CHECKS_A_SLOT, StagingService
from rocketpy_broker.services.topics.manager import TopicConfigManager
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.staging.area import StagedAttempt
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_proto.counts import counted


class CommitCheck:
    """A finder of the attempts that a commit names."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        staging: StagingService,
        files: StagedFiles,
    ) -> None:
        self._store = store
        self._files = files
        self._topics = topics
        self._staging = staging

    async def are_copied(self, job: Job, tasks: Sequence[StagedTask], wait_ms_max: int) -> bool:
        """Waits until enough slaves have copies of the tasks' files; False after `wait_ms_max`.

        Raises as `attempts`.
        """
        if not self._files.is_waited_for:
            return True
        # Slaves copy only files of ended attempts, so these are checked first.
        await self.attempts(job, tasks)
        keys = ((task.task, task.token) for task in tasks)
        named = (job.attempts[key].staged for key in keys if key in job.attempts)
        return await self._files.copied(named, wait_ms_max)

    async def attempts(self, job: Job, tasks: Sequence[StagedTask]) -> list[StagedAttempt]:
        """Returns the attempts that a commit names, in its order: ended, whole, with its counts.

        Raises StagedIllegalError, TopicNotExistError, QueueIdIllegalError, StoreClosedError.
        """
        if len({task.task for task in tasks}) < len(tasks):
            raise StagedIllegalError("a task is named twice; name one attempt of each task")
        found: list[StagedAttempt] = []
        uses: defaultdict[str, _TopicUse] = defaultdict(_TopicUse)
        for begin in range(0, len(tasks), CHECKS_A_SLOT):
            some = await self._check_attempts(job, tasks[begin : begin + CHECKS_A_SLOT])
            for staged in some:
                for topic, queue_id in staged.queue_ids.items():
                    uses[topic].add(staged, queue_id, staged.deletion_counts.get(topic))
            found += some
        # Waits here, since the decision is appended without a wait after the check of topics.
        await self._staging.admission.write_over()
        # Topics may have changed during the awaits above.
        for topic, use in uses.items():
            self._check_topic(topic, use)
        return found

    async def _check_attempts(self, job: Job, tasks: Sequence[StagedTask]) -> list[StagedAttempt]:
        attempts = [_named(job, task) for task in tasks]
        staged = [attempt.staged for attempt in attempts]
        # One call of a thread for all of them: the threads may have a long queue of work.
        untouched = await self._staging.in_thread(lambda: [one.is_untouched for one in staged])
        for attempt, task, is_untouched in zip(attempts, tasks, untouched, strict=True):
            if attempt.lock.locked() or not is_untouched:
                async with attempt.lock:
                    # Written before the start, or by another process since.
                    scan = attempt.staged.scan
                    await self._staging.file_call(attempt.staged, scan, long=True)
            _check_attempt(attempt, task)
        return staged

    def _check_topic(self, topic: str, use: _TopicUse) -> None:
        self._topics.check_writable(topic, use.queue_id)
        is_deleted = use.deletion_counts - {self._store.deletion_counts[topic]}
        if is_deleted or use.log_end < self._store.deleted_below(topic):
            raise StagedIllegalError(
                f"topic {topic!r} has been deleted since the batch was staged; write it again"
            )


@dataclass(slots=True)
class _TopicUse:
    """The use of one topic by all attempts of a batch; StagedAttempt has the fields.

    The highest of their queue ids and the lowest of their log ends are kept.
    """

    queue_id: int = -1
    log_end: float = math.inf
    deletion_counts: set[int] = field(default_factory=set)

    def add(self, staged: StagedAttempt, queue_id: int, deletion_count: int | None) -> None:
        self.queue_id = max(self.queue_id, queue_id)
        self.log_end = min(self.log_end, staged.log_end - staged.is_older)
        if deletion_count is not None:
            self.deletion_counts.add(deletion_count)


def _check_attempt(attempt: Attempt, task: StagedTask) -> None:
    """Raises StagedIllegalError for an attempt that differs from the commit's counts."""
    staged = attempt.staged
    if attempt.is_gone or not staged.is_sealed or staged.counts != task.counts:
        lack = "" if staged.is_sealed else ", and its end is missing"
        raise StagedIllegalError(
            f"{staged.file.path.name} holds {_described(staged.counts)} of task {task.task}, but "
            f"the commit names {_described(task.counts)}{lack}: the file was damaged, or cut by a "
            "crash. Write the batch again"
        )


def _named(job: Job, task: StagedTask) -> Attempt:
    """Returns the named attempt. Raises StagedIllegalError if the job has none."""
    attempt = job.attempts.get((task.task, task.token))
    if attempt is None:
        raise StagedIllegalError(
            f"nothing is staged for task {task.task} of batch {job.name.batch_id}: its "
            "attempt was removed, or never ended. Write the batch again"
        )
    return attempt


def _described(counts: StagedCounts) -> str:
    blocks, records = counted(counts.block_count, "block"), counted(counts.record_count, "record")
    return f"{blocks} of {records}, {counted(counts.bytes, 'byte')}"
