"""Pulling a range of a queue, through broken connections and restarts. State: where to go on.

What a task has not asked for yet is on its way already: HTTP/2 lets the broker send up to
`prefetchBytesMax` ahead, and gRPC takes that in on threads of its own. So a response is there when
the one before is decoded, errors come where they belong, and nothing but the call needs an end. A
thread of ours that calls ahead was measured: it adds nothing. After a broken connection the pull
goes on behind the last record that came, at the first endpoint that answers. Each call names the
store that the range is of, and a broker with another one refuses it; and the recovery that its plan
knows, so that a broker gives nothing that has come in place of what a power cut took since. A
killed task leaves nothing behind.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

import grpc

from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, loss_advice
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import (
    SQL92,
    TOPIC_NOT_EXIST,
    BrokerClient,
    check,
    client_for,
)
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import leaving_other_stores, retries_for
from pyspark_rocketpy.transport.rebatching import RecordChunk, lost_end, wrong_answer
from pyspark_rocketpy.transport.retries import PASSING_ERRORS, PassingError
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.record import MalformedRecordError, decode_sizes
from rocketpy_proto.rocketpy.v1 import broker_pb2

logger = logging.getLogger(__name__)
QUERY_NOT_FOUND = 22
SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 0, 19, 20, 21
ANSWERS = (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED)


class RangePuller:
    """Pulls one range; `_offset` is the next one that has not come."""

    def __init__(
        self, client: ClientConfig, policy: RetryPolicy, options: PullOptions, part: QueueRange
    ) -> None:
        self._client = client
        self._options = options
        self._range = part
        self._offset = part.begin
        self._retries = retries_for(client, policy)

    def pieces(self) -> Generator[RecordChunk]:
        """What the broker has of the range, as it comes.

        Raises DataLossError, OffsetError, ConnectionFailedError, BrokerError.
        """
        while self._offset < self._range.end:
            before = self._offset
            error: PassingError | None = None
            try:
                with leaving_other_stores(self._client):
                    yield from self._pull_once(client_for(self._client))
            except PASSING_ERRORS as failure:
                error = failure
            if self._offset > before:
                self._retries.succeeded()
            elif error is None:
                place = self._range.rest(self._offset)
                error = ConnectionFailedError(f"{place}: a pull ended without an answer")
            if error is not None:
                self._retries.pause(error)

    def _pull_once(self, client: BrokerClient) -> Iterator[RecordChunk]:
        """Yields one call's pieces. Raises ConnectionFailedError if it breaks."""
        begin = self._offset
        call = client.pull(self._request())
        try:
            for response in call:
                if self._is_gone(response.head.status.code):
                    self._give_up(response.head.status.remark)
                    return
                if response.head.status.code not in ANSWERS:
                    check(response.head.status)
                yield from self._pieces(response)
        except grpc.RpcError as error:
            # A task whose rows are taken slowly outlives its calls; that is no fault.
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or self._offset == begin:
                raise client.failed(error) from error
        finally:
            call.cancel()

    def _is_gone(self, code: int) -> bool:
        """True if an answer says that something else than what was planned is there now."""
        is_remade = self._range.topic_epoch and code == TOPIC_NOT_EXIST
        return bool(is_remade or (self._options.recovery_id and code == QUERY_NOT_FOUND))

    def _request(self) -> broker_pb2.PullRequest:
        """Without the group: tasks read ranges that the driver chose, as nobody's members."""
        expression = self._options.expression
        return broker_pb2.PullRequest(
            topic=self._range.topic,
            queue_id=self._range.queue_id,
            offset=self._offset,
            offset_end=self._range.end,
            response_bytes_max=self._options.fetch_bytes_max,
            tags_codes=self._options.tags_codes,
            expression_type="" if expression is None else SQL92,
            expression=expression or "",
            store_id=self._options.store_id,
            topic_epoch=self._range.topic_epoch,
            recovery_id=self._options.recovery_id,
        )

    def _pieces(self, response: PullResponseParts) -> Iterator[RecordChunk]:
        """Yields the piece that a response brings, if it brings one. Raises OffsetError."""
        head = response.head
        is_scanned = head.pull_status == broker_pb2.NO_MATCHED_MESSAGE
        if is_scanned and not self._options.is_filtered:
            raise wrong_answer(self._range, self._offset, "no match, to a pull without a filter")
        if head.status.code != SUCCESS and not is_scanned:
            self._skip(head)
            return
        begin, end = self._offset, min(head.next_offset, self._range.end)
        try:
            sizes = decode_sizes(head.record_sizes)
        except MalformedRecordError as error:
            raise wrong_answer(self._range, begin, str(error)) from error
        if end <= begin or (not is_scanned and not len(sizes)):
            reason = f"{len(sizes)} records, and {head.next_offset} as the next offset"
            raise wrong_answer(self._range, begin, reason)
        self._offset = end
        yield RecordChunk(begin, end, memoryview(response.records[0]), sizes)

    def _give_up(self, reason: str) -> None:
        """The topic or the rest of the range is gone, or is another one: fail, or leave it out."""
        self._lose(self._range.end, f" are gone: {reason}")

    def _skip(self, head: broker_pb2.PullResponse) -> None:
        """The next message is gone: fail, or go on behind what is lost.

        Raises ConnectionFailedError where the queue still holds it.
        """
        held = f"the queue now holds [{head.min_offset}, {head.max_offset})"
        end = lost_end(
            self._offset,
            self._range.end,
            next_offset=head.next_offset,
            min_offset=head.min_offset,
            max_offset=head.max_offset,
            is_moved=head.status.code == PULL_OFFSET_MOVED,
        )
        if end is None:
            place = self._range.rest(self._offset)
            raise ConnectionFailedError(
                f"{place}: the broker answers a pull with status {head.pull_status}, though {held}"
            )
        self._lose(end, f": {end - self._offset} messages are gone, {held}")

    def _lose(self, end: int, loss: str) -> None:
        """Messages up to `end` are lost: fail, or leave them out. Raises DataLossError."""
        text = f"{self._range.rest(self._offset)}{loss}"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}; {loss_advice()}")
        logger.warning("%s; the query goes on without them", text)
        self._offset = end
