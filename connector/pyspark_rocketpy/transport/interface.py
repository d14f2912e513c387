"""Interfaces of a transport, for source and sink, for any protocol.

A transport is a plain value: it is pickled into tasks and connects at its first use. Every call
goes to the first address that answers. A call is repeated while retries are left, if a repetition
is harmless.

`tests/unit/connector/transport/test_contract.py` is the suite that every transport passes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark_rocketpy.offsets import Bounds, Epochs, Positions, QueueRange
from pyspark_rocketpy.transport.rebatching import RecordChunk
from pyspark_rocketpy.transport.values import BrokerLimits, PullOptions, QueueTime, Subscription

if TYPE_CHECKING:
    from pyspark_rocketpy.errors import BrokerError, ConnectionFailedError
    from pyspark_rocketpy.transport.write_values import (
        Attempt,
        BatchJob,
        Block,
        CommittedBatch,
        MessageToSendBack,
        SentBack,
        WriteQueues,
    )


class OffsetQueries(Protocol):
    """Queries of a planner. Each method raises ConnectionFailedError, BrokerError.

    A query is repeated, within the retries, after a busy broker or a broken call. A connection that
    fails before the first answer is an error at once: the address may be wrong.
    """

    def bounds(
        self,
        subscription: Subscription,
        known: Bounds | None = None,
        wait_ms_max: int = 0,
        recovery_id: str = "",
    ) -> Bounds:
        """Returns bounds and committed offsets of every queue of the topics that exist.

        The answer may wait up to `wait_ms_max` until it differs from `known`. It comes at once if
        the store has newer recoveries than `recovery_id`. It then reports the offsets at which
        the recoveries cut queues.
        """

    def hidden_bounds(self, queues: Positions, recovery_id: str = "") -> Bounds:
        """Returns bounds of queues with these positions, also of queues that are no longer read.

        A queue is missing if its broker does not know it, or does not answer. Reports cuts as
        `bounds` does.
        """

    @property
    def store_id(self) -> str:
        """The store of the queries: the required one, or the first that answered.

        Empty before the first answer, and for a broker without ids.
        """

    @property
    def recovery_id(self) -> str:
        """The store's newest recovery at the last answer to `bounds`.

        Empty before the first answer, and for a broker without recoveries.
        """

    @property
    def unanswered(self) -> ConnectionFailedError | BrokerError | None:
        """The reason for queues missing in the last answer to `bounds`; None if none are missing.

        A cluster also answers while a broker that has queues does not.
        """

    def require_store(self, store_id: str) -> None:
        """Requires this store for every later answer; an empty id requires nothing.

        Every method, also in the tasks, then raises OtherStoreError if another store answers.
        """

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """Returns the first offset of each queue stored at or after its time.

        None means a queue without such an offset.
        """

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """Returns the ends of the ranges, cut so that all their records have at most `bytes_max`.

        At least one message is left.
        """

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        """Returns the parts of the ranges, in order, that may hold messages with one of the keys.

        The rest of the ranges holds none. A broker that cannot search by key answers with whole
        ranges.
        """

    def expression_fault(self, expression: str) -> str | None:
        """Returns the fault of an SQL92 expression and its place; None if a pull can use it."""

    def broker_name(self) -> str:
        """Returns the name of the broker that answers; a part before an @ is its machine room."""

    def commit(self, group: str, positions: Positions, epochs: Epochs) -> None:
        """Commits a group's progress, which replaces its previous commit.

        Nothing is committed for a topic that has another epoch than the one given for it.
        """


class SourceTransport(Protocol):
    """Calls of the source."""

    def offset_queries(self) -> OffsetQueries:
        """Returns the queries of one planner."""

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        """Yields the records of a range in order, each once, also over broken connections.

        Chunks join without gaps, except at lost messages. Closing the generator ends the pull.
        Raises DataLossError for lost messages if `options.fail_on_data_loss` is set. A deletion or
        recreation of the topic at a rocketpy broker loses them, too. Raises DataLossError in any
        case if a cluster no longer has the queue. Raises OtherStoreError if a broker answers with
        another store than that of `options`. Raises OffsetError, ConnectionFailedError,
        BrokerError.
        """


class BlockWriter(Protocol):
    """A writer of one task's blocks, all to one store: the first that answered.

    The caller must call `close`, also after errors.
    """

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """Returns each topic's queues for writing; their numbers are the destinations of blocks.

        Raises BrokerError for a topic that does not exist, ConnectionFailedError.
        """

    def send(self, block: Block) -> None:
        """Sends a block; waits while too many are unacknowledged.

        Blocks for one queue are stored in the order of their sends. Raises BrokerError for a
        refused block, OtherStoreError if another store answers, ConnectionFailedError.
        """

    def finish(self) -> bytes:
        """Waits for every acknowledgement; returns the task's part of the batch's commit.

        The part is empty if there is nothing to commit. Raises CommitError if the broker has kept
        other data than the task sent. Raises BrokerError, ConnectionFailedError.
        """

    def close(self) -> None:
        """Ends the writer, in whatever state it is."""


class SinkTransport(Protocol):
    """Calls of the sink."""

    def limits(self) -> BrokerLimits:
        """Returns the limits of the broker. Raises ConnectionFailedError."""

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        """Returns a writer of staged blocks or, without an attempt, of blocks that show at once.

        Staged blocks show with their batch. A newer job for the same batch or a later one discards
        the blocks staged by this job. The broker then refuses further blocks of this job.
        """

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        """Shows everything that the tasks of one job have staged, once.

        Nothing new shows if this batch or a later one was committed before. Waits for as long as
        the batch makes progress. A repetition is harmless. Raises CommitError if there are no
        parts, or if they are of several jobs or of another batch. Raises CommitError also if the
        commit makes no progress. Raises OtherStoreError if a broker answers that is not the one
        with the staged blocks. Raises BrokerError, ConnectionFailedError.
        """

    def abort_batch(self, job: BatchJob) -> None:
        """Removes the staged blocks of a job, unless it was committed.

        Raises BrokerError, ConnectionFailedError.
        """


class RetryTransport(Protocol):
    """Calls of `send_back`."""

    def send_back(
        self, group: str, messages: Sequence[MessageToSendBack], reconsume_times_max: int | None
    ) -> SentBack:
        """Sends messages back for the group to consume again; all are stored when it returns.

        Messages are sent again after broken connections, so a message may come twice. The group's
        own maximum applies if none is given. Raises BrokerError for a message that cannot be sent
        back; other messages may have been sent back by then. Raises ConnectionFailedError.
        """
