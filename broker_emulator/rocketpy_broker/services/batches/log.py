"""The batches queue in the log: decisions and completions.

Entry: a message with a JSON body and the tag `decision` or `completion`. A decision names the
committed attempts, so that a start can carry it out from their staging files. A completion holds
the number of stored messages. If a crash tears a decision, it is cut with the log's tail and does
not take effect.

The queue is read at the start and written by `BatchService` alone; clients cannot read it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rocketpy_broker.runtime.clock import Clock
from rocketpy_broker.services.topics.system import BATCHES_TOPIC
from rocketpy_broker.store.message_store import MessageStore
from rocketpy_broker.store.queues.dispatch import AppendHints
from rocketpy_broker.store.staging.area import BatchJob
from rocketpy_broker.store.staging.file import StagedCounts
from rocketpy_broker.store.values import (
    AppendResult,
    GetMessageStatus,
    PutCause,
    QueueKey,
    ReadLimits,
)
from rocketpy_proto.record import Record, RecordBlock, decode_record, encode_record
from rocketpy_proto.record.properties import TAGS

logger = logging.getLogger(__name__)
BATCHES_QUEUE = QueueKey(BATCHES_TOPIC, 0)
DECISION, COMPLETION = "decision", "completion"
_READ_BYTES = 1 << 20
# With random tokens, fewer tasks fit into a decision of 4 MiB.
TASKS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class StagedTask:
    """The committed attempt at a task, and its staged counts."""

    task: int
    token: int
    counts: StagedCounts


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages that a job commits, in the order of `tasks`: all of them once, or none."""

    job: BatchJob
    tasks: tuple[StagedTask, ...] = ()
    is_single: bool = False

    @property
    def record_count(self) -> int:
        """Messages of the whole batch."""
        return sum(task.counts.record_count for task in self.tasks)

    def to_json(self) -> bytes:
        """Returns the body of the decision.

        It is built in pieces, so that other threads run meanwhile.
        """
        tasks = ",".join(
            f"[{task.task},{task.token},{task.counts.block_count},{task.counts.record_count},"
            f"{task.counts.bytes}]"
            for task in self.tasks
        )
        head = {
            "writerId": self.job.writer_id,
            "batchId": self.job.batch_id,
            "jobToken": self.job.token,
            "isSingle": self.is_single,
        }
        return f'{json.dumps(head)[:-1]},"tasks":[{tasks}]}}'.encode()


@dataclass(frozen=True, slots=True)
class Decision:
    """A decided batch, and the offsets of its record."""

    batch: Batch
    queue_offset: int
    physical_offset: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A batch that is stored as far as possible: `stored_count` messages.

    It repeats the fields of the decision that are needed if the decision is damaged.
    """

    job: BatchJob
    stored_count: int
    record_count: int
    is_single: bool
    store_timestamp_ms: int


class BatchLog:
    """The writer and reader of decisions and completions."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def append_decision(self, batch: Batch, body: bytes) -> Decision:
        """Decides a batch; `body` is the batch as JSON.

        Raises the errors of `MessageStore.append`; then nothing is decided.
        """
        stored = self._append(DECISION, body)
        return Decision(
            batch, stored.queue_offset, stored.physical_offset, stored.store_timestamp_ms
        )

    def append_completion(self, batch: Batch, stored_count: int) -> AppendResult:
        """Appends the completion, so that the next start does not search for the batch's records.

        Raises the errors of `MessageStore.append`.
        """
        content = {
            "writerId": batch.job.writer_id,
            "batchId": batch.job.batch_id,
            "jobToken": batch.job.token,
            "isSingle": batch.is_single,
            "recordCount": batch.record_count,
            "storedCount": stored_count,
        }
        return self._append(COMPLETION, json.dumps(content, separators=(",", ":")).encode())

    def _append(self, tag: str, body: bytes) -> AppendResult:
        record = Record(
            BATCHES_TOPIC,
            0,
            body,
            {TAGS: tag},
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._store.store_host,
            store_host=self._store.store_host,
        )
        block = RecordBlock.parse(bytearray(encode_record(record)))
        return self._store.append(BATCHES_QUEUE, block, AppendHints(cause=PutCause.OWN))

    def read(self, offset: int) -> Iterator[Decision | Completion]:
        """Yields the remaining entries from `offset` of the queue on."""
        bounds = self._store.range_of(BATCHES_QUEUE)
        # Past the end: the queue was lost, and its offsets start again.
        offset = bounds.min_offset if offset > bounds.max_offset else offset
        offset = max(offset, bounds.min_offset)
        while offset < bounds.max_offset:
            found = self._store.get_message(
                BATCHES_QUEUE, offset, bounds.max_offset, ReadLimits.of_bytes(_READ_BYTES)
            )
            if found.status is GetMessageStatus.FOUND:
                data = found.data
                position = 0
                for size in found.sizes.tolist():
                    yield _of_record(decode_record(data, position).record)
                    position += size
            else:
                logger.critical(
                    "the record at offset %d of %s is lost: the decision or completion of a batch",
                    *(offset, BATCHES_TOPIC),
                )
            offset = max(found.next_offset, offset + 1)


def _of_record(record: Record) -> Decision | Completion:
    content = json.loads(record.body)
    job = BatchJob(content["writerId"], content["batchId"], content["jobToken"])
    is_single = content["isSingle"]
    if record.properties.get(TAGS) == COMPLETION:
        counts = content["storedCount"], content["recordCount"]
        return Completion(job, *counts, is_single, record.store_timestamp_ms)
    tasks = tuple(
        StagedTask(task, token, StagedCounts(block_count, record_count, bytes_))
        for task, token, block_count, record_count, bytes_ in content["tasks"]
    )
    batch = Batch(job, tasks, is_single)
    return Decision(batch, record.queue_offset, record.physical_offset, record.store_timestamp_ms)
