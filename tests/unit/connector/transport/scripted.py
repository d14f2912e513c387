"""A transport without a network: a broker in memory that a test fills, with scripted failures.

It may fail any call, as often as `faults` says. It never loses, doubles or reorders messages that
it has stored or staged, and never answers in part. Staged blocks are removed with their batch, by
an abort, and by a newer job; never by time. Pickled, it stays the same broker of this process.
"""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyspark_rocketpy.errors import (
    BrokerError,
    CommitError,
    ConnectionFailedError,
    DataLossError,
    OtherStoreError,
    loss_advice,
)
from pyspark_rocketpy.offsets import Bounds, Epochs, Positions, QueueRange
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.values import BrokerLimits, PullOptions, QueueTime, Subscription
from pyspark_rocketpy.transport.write_values import (
    Attempt,
    BatchJob,
    Block,
    CommittedBatch,
    WriteQueues,
)
from rocketpy_broker.services.filters.parser import ExpressionError, parse
from rocketpy_broker.services.filters.service import FilterService, FilterText
from rocketpy_proto.call_limits import OWN_QUEUES
from rocketpy_proto.record import Host, RecordBlock, decode_record, java_hash
from tests.support.blocks import by_queue
from tests.unit.connector.transport.scripted_bounds import Recoveries, bounds_of, hidden_of

# Size of a record's size, which is sent beside the record.
SIZE_BYTES = 4
STORE_HOST = Host.parse("127.0.0.1:10911")
_brokers: dict[int, MemoryBroker] = {}
_numbers = itertools.count()


@dataclass(frozen=True)
class Message:
    """A stored record, its time in ms, and its searchable fields."""

    record: bytes
    stored_ms: int
    tags_code: int
    keys: frozenset[str]

    def matches(self, expression: str) -> bool:
        """True if an SQL92 expression is true for it."""
        wanted = FilterService().filter_of(FilterText("SQL92", expression)).sql92
        assert wanted is not None
        return bool(wanted.matches(RecordBlock.parse(self.record)).all())


@dataclass(frozen=True)
class StagedTask:
    """A task's result for the driver, pickled."""

    attempt: Attempt
    block_count: int
    store_id: str


@dataclass(frozen=True)
class LastBatch:
    """A writer's last committed batch, and its number of visible messages."""

    job: BatchJob
    record_count: int


@dataclass
class MemoryBroker:
    """The broker of one or more transports; a test sets `now_ms`."""

    topics: dict[str, list[list[Message]]] = field(default_factory=dict)
    # Number of read queues of each topic that hides some.
    readable: dict[str, int] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    staged: dict[BatchJob, dict[Attempt, list[Block]]] = field(default_factory=dict)
    discarded: set[BatchJob] = field(default_factory=set)
    last_batches: dict[str, LastBatch] = field(default_factory=dict)
    faults: list[Exception] = field(default_factory=list)
    store_id: str = "11"
    recoveries: Recoveries = field(default_factory=Recoveries)
    now_ms: int = 1_700_000_000_000
    changed: threading.Condition = field(default_factory=threading.Condition)

    def create_topic(self, topic: str, queues: int) -> None:
        """Creates an empty topic."""
        self.topics[topic] = [[] for _ in range(queues)]

    def store(self, block: Block) -> None:
        """Appends the records of a block to its queue, or to the queues that they name."""
        if block.queue_id == OWN_QUEUES:
            parts = by_queue(block.queue_id, block.records, block.record_sizes)
            for queue_id, part in parts.items():
                self.store(Block(block.topic, queue_id, part.record_sizes, part.records))
            return
        queue = self.queue(block.topic, block.queue_id)
        sizes = np.frombuffer(block.record_sizes, ">i4").astype(np.int32)
        parsed = RecordBlock.parse(bytearray(block.records), sizes)
        parsed.patch_stored(
            queue_offset_first=len(queue),
            physical_offset_first=0,
            store_timestamp_ms=self.now_ms,
            store_host=STORE_HOST,
            queue_id=block.queue_id,
        )
        ends = np.cumsum(sizes).tolist()
        with self.changed:
            for begin, end in itertools.pairwise([0, *ends]):
                data = parsed.data[begin:end].tobytes()
                properties = decode_record(data, 0).record.properties
                code = java_hash(properties.get("TAGS", ""))
                keys = frozenset(properties.get("KEYS", "").split())
                queue.append(Message(data, self.now_ms, code, keys))
            self.changed.notify_all()

    def queue(self, topic: str, queue_id: int) -> list[Message]:
        """Returns the messages of a queue. Raises BrokerError."""
        if topic not in self.topics or queue_id >= len(self.topics[topic]):
            raise BrokerError(f"topic {topic!r} has no queue {queue_id} (response code 17)")
        return self.topics[topic][queue_id]

    def is_committed(self, job: BatchJob) -> bool:
        """True if the writer has committed this batch or a later one."""
        last = self.last_batches.get(job.batch.writer_id)
        return last is not None and last.job.batch.batch_id >= job.batch.batch_id

    def attempts(self, job: BatchJob) -> dict[Attempt, list[Block]]:
        """Returns the blocks that a job has staged. Raises BrokerError for a superseded job.

        A job that is new here supersedes the writer's other jobs, except for later batches.
        """
        if job in self.discarded:
            raise BrokerError(f"what {job} staged was removed (response code 13)")
        if job not in self.staged:
            for other in self._up_to(job):
                self.remove(other)
        return self.staged.setdefault(job, {})

    def _up_to(self, job: BatchJob) -> list[BatchJob]:
        writer_id, batch_id = job.batch.writer_id, job.batch.batch_id
        return [
            other
            for other in self.staged
            if other.batch.writer_id == writer_id and other.batch.batch_id <= batch_id
        ]

    def remove(self, job: BatchJob) -> None:
        """Supersedes a job and removes all that it has staged."""
        self.staged.pop(job, None)
        self.discarded.add(job)

    def commit(self, job: BatchJob, tasks: Sequence[StagedTask]) -> None:
        """Makes a job's batch visible. Raises BrokerError for attempts without the named blocks."""
        attempts, blocks = self.attempts(job), list[Block]()
        for task in tasks:
            found = attempts.get(task.attempt, [])
            if len(found) != task.block_count:
                raise BrokerError(f"{task} has {len(found)} blocks here (response code 13)")
            blocks += found
        for block in blocks:
            self.store(block)
        count = sum(len(block.record_sizes) // SIZE_BYTES for block in blocks)
        self.last_batches[job.batch.writer_id] = LastBatch(job, count)
        for other in self._up_to(job):
            self.remove(other)

    def enter(self, store_id: str = "") -> None:
        """Fails the call if the script says so, or if it is for another store."""
        if self.faults:
            raise self.faults.pop(0)
        if store_id not in {"", self.store_id}:
            raise OtherStoreError(f"store {store_id} is meant, store {self.store_id} answers")


class ScriptedTransport:
    """A scripted SourceTransport and SinkTransport."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._number = next(_numbers)
        _brokers[self._number] = broker

    @property
    def broker(self) -> MemoryBroker:
        """The broker, found by number, so that a pickled copy finds it, too."""
        return _brokers[self._number]

    def offset_queries(self) -> ScriptedOffsetQueries:
        return ScriptedOffsetQueries(self.broker)

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        offset, found = part.begin, 0
        while offset < part.end:
            self.broker.enter(options.store_id)
            queue = self.broker.queue(part.topic, part.queue_id)
            cut = self.broker.recoveries.cut_of(part.topic, part.queue_id, options.recovery_id)
            if offset >= (queue_end := len(queue) if cut is None else min(cut, len(queue))):
                if options.fail_on_data_loss:
                    raise DataLossError(f"{part.rest(offset)} are gone; {loss_advice()}")
                return
            # Pieces of odd lengths, so that no caller relies on them.
            end = min(part.end, queue_end, offset + 1 + found % 3)
            wanted = [
                message
                for message in queue[offset:end]
                if not options.tags_codes or message.tags_code in options.tags_codes
                if options.expression is None or message.matches(options.expression)
            ]
            records = memoryview(b"".join(message.record for message in wanted))
            sizes = np.array([len(message.record) for message in wanted], np.int32)
            yield RecordChunk(offset, end, records, sizes)
            offset, found = end, found + 1

    def limits(self) -> BrokerLimits:
        self.broker.enter()
        return BrokerLimits(4 << 20, 32 << 20, 1 << 30)

    def block_writer(self, attempt: Attempt | None) -> ScriptedBlockWriter:
        return ScriptedBlockWriter(self.broker, attempt)

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        self.broker.enter()
        tasks: list[StagedTask] = [pickle.loads(part) for part in parts]
        jobs = {task.attempt.job for task in tasks}
        if {job.batch.batch_id for job in jobs} != {batch_id} or len(jobs) > 1:
            raise CommitError(f"batch {batch_id} is to be committed, not {jobs}")
        (job,) = jobs
        self.broker.enter(tasks[0].store_id)
        if not self.broker.is_committed(job):
            self.broker.commit(job, tasks)
        last = self.broker.last_batches[job.batch.writer_id]
        count = last.record_count
        return CommittedBatch(last.job.batch.batch_id, last.job == job, count, count)

    def abort_batch(self, job: BatchJob) -> None:
        self.broker.enter()
        self.broker.remove(job)


class ScriptedOffsetQueries:
    """A scripted OffsetQueries."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._store_id = ""
        self.recovery_id = ""
        self.unanswered: ConnectionFailedError | BrokerError | None = None

    @property
    def store_id(self) -> str:
        return self._store_id

    def require_store(self, store_id: str) -> None:
        self._store_id = store_id or self._store_id

    def bounds(
        self,
        subscription: Subscription,
        known: Bounds | None = None,
        wait_ms_max: int = 0,
        recovery_id: str = "",
    ) -> Bounds:
        broker = self._broker
        broker.enter(self._store_id)
        self.require_store(broker.store_id)
        self.recovery_id = broker.recoveries.newest_id

        def now() -> Bounds:
            told = broker.topics, broker.committed, broker.recoveries
            return bounds_of(*told, subscription, recovery_id, broker.readable)

        with broker.changed:
            if wait_ms_max:
                broker.changed.wait_for(lambda: now() != known, wait_ms_max / 1000)
            return now()

    def hidden_bounds(self, queues: Positions, recovery_id: str = "") -> Bounds:
        broker = self._broker
        broker.enter(self._store_id)
        told = broker.topics, broker.recoveries
        return hidden_of(*told, queues, recovery_id, broker.readable)

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        self._broker.enter(self._store_id)
        found: list[int | None] = []
        for time in times:
            queue = self._broker.queue(time.topic, time.queue_id)
            late = (i for i, message in enumerate(queue) if message.stored_ms >= time.timestamp_ms)
            found.append(next(late, None))
        return found

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        self._broker.enter(self._store_id)
        share, ends = bytes_max // max(1, len(ranges)), []
        for number, part in enumerate(ranges):
            queue = self._broker.queue(part.topic, part.queue_id)
            end = part.begin + (number == 0)
            while end < part.end and _bytes(queue[part.begin : end + 1]) <= share:
                end += 1
            ends.append(min(end, part.end))
        return ends

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        self._broker.enter(self._store_id)
        return [
            QueueRange(part.topic, part.queue_id, offset, offset + 1)
            for part in ranges
            for offset, message in enumerate(self._broker.queue(part.topic, part.queue_id))
            if part.begin <= offset < part.end and message.keys.intersection(keys)
        ]

    def expression_fault(self, expression: str) -> str | None:
        self._broker.enter(self._store_id)
        try:
            parse(expression)
        except ExpressionError as error:
            return str(error)
        return None

    def broker_name(self) -> str:
        self._broker.enter(self._store_id)
        return "broker-a"

    def commit(self, group: str, positions: Positions, epochs: Epochs) -> None:
        self._broker.enter(self._store_id)
        for topic, queues in positions.items():
            for queue, offset in queues.items():
                self._broker.committed[group, topic, queue.queue_id] = offset


class ScriptedBlockWriter:
    """A scripted BlockWriter."""

    def __init__(self, broker: MemoryBroker, attempt: Attempt | None) -> None:
        self._broker = broker
        self._attempt = attempt
        self._block_count = 0
        self._store_id = broker.store_id
        # Registers the job at the broker; a refusal is raised by the next send.
        with contextlib.suppress(BrokerError):
            self._staged()

    def _staged(self) -> list[Block]:
        """Returns the attempt's list of blocks; a detached one if the batch is committed.

        Raises BrokerError for a superseded job.
        """
        if self._attempt is None or self._broker.is_committed(self._attempt.job):
            return []
        return self._broker.attempts(self._attempt.job).setdefault(self._attempt, [])

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        self._broker.enter()
        for topic in topics:
            self._broker.queue(topic, 0)
        return {topic: WriteQueues({"": len(self._broker.topics[topic])}) for topic in topics}

    def send(self, block: Block) -> None:
        self._broker.enter(self._store_id)
        self._broker.queue(block.topic, block.queue_id)
        if self._attempt is None:
            self._broker.store(block)
        else:
            self._staged().append(block)
            self._block_count += 1

    def finish(self) -> bytes:
        self._broker.enter(self._store_id)
        self._staged()
        if self._attempt is None:
            return b""
        return pickle.dumps(StagedTask(self._attempt, self._block_count, self._store_id))

    def close(self) -> None:
        """Closes nothing."""


def _bytes(messages: Sequence[Message]) -> int:
    return sum(len(message.record) for message in messages)


def away() -> ConnectionFailedError:
    """Returns a fault for the script: no broker answers."""
    return ConnectionFailedError("the script says so")
