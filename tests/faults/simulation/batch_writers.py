"""A writer of batches, like the sink: each batch is stored once and whole, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketpy_broker.broker_services import BrokerServices
from rocketpy_broker.errors import BrokerError
from rocketpy_broker.services.batches.log import Batch, StagedTask
from rocketpy_broker.services.batches.outcome import Outcome as BatchOutcome
from rocketpy_broker.services.batches.staging_service import StageCommand
from rocketpy_broker.store.config import FlushDiskType
from rocketpy_broker.store.staging.area import BatchJob, TaskAttempt
from rocketpy_broker.store.values import QueueKey
from tests.faults.histories.events import AllOrNone, Outcome
from tests.faults.histories.history import id_of
from tests.faults.simulation.machine import Machine
from tests.faults.simulation.producers import QUEUES, TOPIC, Producers, Wait, block_of

WRITER = "a query"
WAIT_MS = 10_000


@dataclass
class Rows:
    """A batch: blocks of messages by queue, for each task."""

    wait: Wait
    tasks: list[list[tuple[int, list[bytes]]]] = field(default_factory=list)
    is_asked_for: bool = False

    @property
    def ids(self) -> list[str]:
        """The ids of all messages."""
        return [id_of(body) for task in self.tasks for _, bodies in task for body in bodies]


class BatchWriter:
    """A writer of one batch after the other; a batch without an answer is written again."""

    def __init__(self, machine: Machine, producers: Producers) -> None:
        self._machine = machine
        self._history = machine.history
        self._producers = producers
        self._batch_id = 0
        self._token = 0
        self._rows: Rows | None = None
        self._is_busy = False
        machine.on_end.append(self._ended)

    def _ended(self) -> None:
        self._is_busy = False

    async def write(self, services: BrokerServices, *, may_stop: bool = True) -> None:
        """Stages the batch again, and mostly commits it."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            await self._write(services, may_stop=may_stop)
        except BrokerError as error:
            self._machine.say("no batch", error)
        finally:
            self._is_busy = False

    async def _write(self, services: BrokerServices, *, may_stop: bool) -> None:
        rows = self._rows = self._rows or self._new_rows()
        self._token += 1
        job = BatchJob(WRITER, self._batch_id, self._token)
        tasks = [
            await self._stage(services, job, number, rows) for number in range(len(rows.tasks))
        ]
        if not may_stop or self._machine.chance.random() < 0.85:
            await self._commit(services, Batch(job, tuple(tasks)), rows)

    def _new_rows(self) -> Rows:
        chance = self._machine.chance
        rows = Rows(self._producers.any_wait() if chance.random() < 0.5 else Wait())
        for _ in range(chance.randint(1, 2)):
            blocks = [
                (chance.randrange(QUEUES), self._producers.new_bodies(chance.randint(1, 3)))
                for _ in range(chance.randint(1, 3))
            ]
            rows.tasks.append(blocks)
            for queue_id, bodies in blocks:
                self._history.begin(id_of(bodies[0]), QueueKey(TOPIC, queue_id), bodies)
        for message_id in rows.ids:
            self._history.sends[message_id].unordered = True
            self._history.outcome(message_id, Outcome.HIDDEN)
        return rows

    async def _stage(
        self, services: BrokerServices, job: BatchJob, number: int, rows: Rows
    ) -> StagedTask:
        attempt = TaskAttempt(job, number, number + 1)
        blocks = rows.tasks[number]
        for block_number, (queue_id, bodies) in enumerate(blocks):
            block = block_of(TOPIC, bodies, rows.wait.properties, self._machine.now_ms)
            await self._machine.call(
                services.batches.staging.stage(
                    StageCommand(
                        attempt,
                        block_number,
                        TOPIC,
                        queue_id,
                        block.records,
                        block.record_sizes,
                        is_last=False,
                    )
                )
            )
        end = StageCommand(attempt, len(blocks), "", 0, b"", b"", is_last=True)
        staged = await self._machine.call(services.batches.staging.stage(end))
        return StagedTask(number, number + 1, staged.counts)

    async def _commit(self, services: BrokerServices, batch: Batch, rows: Rows) -> None:
        machine, history = self._machine, self._history
        if not rows.is_asked_for:
            rows.is_asked_for = True
            if machine.flush is FlushDiskType.SYNC_FLUSH:
                history.events.append(AllOrNone(tuple(rows.ids)))
            for message_id in rows.ids:
                history.outcome(message_id, Outcome.UNKNOWN)
                history.sends[message_id].due_ms = rows.wait.due_ms(machine.now_ms)
        machine.due_ms_max = max(machine.due_ms_max, rows.wait.due_ms(machine.now_ms))
        state = await machine.call(services.batches.commits.commit(batch, WAIT_MS))
        machine.say("batch", batch.job.batch_id, state.outcome.name, rows.ids)
        if state.outcome in (BatchOutcome.COMMITTED, BatchOutcome.ALREADY_COMMITTED):
            for message_id in rows.ids:
                history.outcome(message_id, Outcome.ACKED, machine.log_end)
            self._batch_id += 1
            self._rows = None
