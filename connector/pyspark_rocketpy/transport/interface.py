"""What source and sink need of a broker, whatever protocol it speaks.

A transport is a plain value: it is pickled into tasks and connects when it is first used. Every
call goes to the first address that answers, and is repeated while retries are left, where a
repetition is harmless. Holds no state.

`tests/unit/connector/transport/contract.py` opens the suite that every transport passes.
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
    """What planning asks. Each method raises ConnectionFailedError, BrokerError.

    A busy broker and a broken call are met by asking again, within the retries. Before the first
    answer a connection that fails is an error at once, as a wrong address is one.
    """

    def bounds(
        self,
        subscription: Subscription,
        known: Bounds | None = None,
        wait_ms_max: int = 0,
        recovery_id: str = "",
    ) -> Bounds:
        """Bounds and committed offsets of every queue of the topics that exist.

        With `wait_ms_max` the answer may wait until it differs from `known`, or until that many
        milliseconds have passed. Where the store has newer recoveries than the one given, the
        answer comes at once, and says where queues were cut.
        """

    def hidden_bounds(self, queues: Positions, recovery_id: str = "") -> Bounds:
        """Bounds of queues with these places, also where topics have fewer queues for reading now.

        Queues that the broker does not know, or that do not answer, are missing. Cuts are answered
        as by `bounds`.
        """

    @property
    def store_id(self) -> str:
        """The store that the queries are about: the one required, or the first that answered.

        Empty before, and where the broker knows of no ids.
        """

    @property
    def recovery_id(self) -> str:
        """The store's newest recovery when `bounds` was answered last.

        Empty before, and where the broker knows of none.
        """

    @property
    def unanswered(self) -> ConnectionFailedError | BrokerError | None:
        """Why queues are missing in the last answer to `bounds`; None where none are.

        A cluster answers also while a broker that has queues does not.
        """

    def require_store(self, store_id: str) -> None:
        """From now on no other store may answer; an empty id requires nothing.

        Every method then raises OtherStoreError where one does, and so do those of the tasks.
        """

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """Returns the first offset of each queue stored at or after its time; None where there is none."""

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """Returns the end of each range, cut back so that all their records have at most `bytes_max`.

        At least one message is left.
        """

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        """Returns the parts of the ranges in which messages with one of the keys can be, in their order.

        Elsewhere there are none. A broker that cannot tell answers with whole ranges.
        """

    def expression_fault(self, expression: str) -> str | None:
        """What is wrong with an SQL92 expression, and where; None if it can be pulled with."""

    def broker_name(self) -> str:
        """Returns the name of the broker that answers; a machine room stands in it before an @."""

    def commit(self, group: str, positions: Positions, epochs: Epochs) -> None:
        """Reports a group's progress, which replaces what it has reported before.

        Nothing is reported where a topic has another epoch than the one given for it.
        """


class SourceTransport(Protocol):
    """What the source needs."""

    def offset_queries(self) -> OffsetQueries:
        """Queries of one planner."""

    def pull(self, part: QueueRange, options: PullOptions) -> Generator[RecordChunk]:
        """Returns the records of a range, as they come: in order, each once, through broken connections.

        Pieces join without gaps but for messages that are lost. Closing the generator ends the
        pull. Raises DataLossError where messages are gone and that is to fail, also with their
        topic, or where another topic has its name;
        OtherStoreError where a broker with another store than that of `options` answers,
        ConnectionFailedError, BrokerError.
        """


class BlockWriter(Protocol):
    """The blocks of one task, all for one store: the first that answered.

    `close` it, whatever happened.
    """

    def write_queues(self, topics: Sequence[str]) -> dict[str, WriteQueues]:
        """Returns the queues that each topic has for writing, by which blocks say where they go.

        Raises BrokerError for a topic that does not exist, ConnectionFailedError.
        """

    def send(self, block: Block) -> None:
        """Sends a block; waits while too many are unacknowledged.

        Blocks for one queue are stored in the order of their sends. Raises BrokerError for a
        refused block, OtherStoreError where another store answers, ConnectionFailedError.
        """

    def finish(self) -> bytes:
        """Waits for every acknowledgement; return the task's part of the batch's commit.

        The part is empty where there is nothing to commit. Raises CommitError where the broker has
        kept something else than what was sent, BrokerError, ConnectionFailedError.
        """

    def close(self) -> None:
        """Ends, in whatever state."""


class SinkTransport(Protocol):
    """What the sink needs."""

    def limits(self) -> BrokerLimits:
        """What the broker takes. Raises ConnectionFailedError."""

    def block_writer(self, attempt: Attempt | None) -> BlockWriter:
        """Returns a writer of blocks that are staged, or, without an attempt, of blocks that show at once.

        Staged blocks show with their batch. A newer job for the same batch or a later one puts
        away what this one has staged; its blocks are then refused.
        """

    def commit_batch(self, parts: Sequence[bytes], batch_id: int) -> CommittedBatch:
        """Shows what the tasks of one job have staged, all of it, once.

        Where this batch or a later one was committed before, nothing new shows. Waits for as long
        as the batch gets on. A repetition is harmless. Raises CommitError where the parts are none,
        do not belong together, or are of another batch, and where the commit stands still;
        OtherStoreError where a broker answers that the tasks did not stage at; BrokerError,
        ConnectionFailedError.
        """

    def abort_batch(self, job: BatchJob) -> None:
        """Removes what a job has staged, unless it was committed.

        Raises BrokerError, ConnectionFailedError.
        """


class RetryTransport(Protocol):
    """What sending back needs."""

    def send_back(
        self, group: str, messages: Sequence[MessageToSendBack], reconsume_times_max: int | None
    ) -> SentBack:
        """Let the group have these messages once more; all are stored when it returns.

        Sent again over broken connections, so a message may come twice. Without a maximum the
        group's own counts. Raises BrokerError for a message that cannot be sent back, which others
        may have been by then; ConnectionFailedError.
        """
