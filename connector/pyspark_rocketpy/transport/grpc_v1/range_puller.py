"""Pulls of one range of a queue, over broken connections and restarts.

State is the next offset to deliver. HTTP/2 lets the broker send up to `prefetchBytesMax` ahead, and
gRPC receives that on its own threads. So a response is there when the previous one is decoded. A
prefetching thread of the connector was not faster in measurements. A broken connection does not end
the pull: it continues at the first endpoint that answers, with the next record.

Each call names the store of the range; a broker with another store refuses it. Each call also names
the recovery known to the plan. So a broker does not deliver messages that replaced records lost in
a later power cut. A killed task leaves no state.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

import grpc

from pyspark_rocketpy.errors import ConnectionFailedError, DataLossError, loss_advice
from pyspark_rocketpy.offsets import QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import (
    TOPIC_NOT_EXIST,
    GrpcClient,
    check,
    client_for,
)
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.retries import leaving_other_stores, retries_for
from pyspark_rocketpy.transport.rebatching import RecordChunk, lost_end, wrong_answer
from pyspark_rocketpy.transport.retries import RETRIABLE_ERRORS, RetriableError
from pyspark_rocketpy.transport.values import PullOptions, RetryPolicy
from rocketpy_proto.counts import counted
from rocketpy_proto.model import SQL92
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.record import MalformedRecordError, decode_sizes
from rocketpy_proto.rocketpy.v1 import broker_pb2

logger = logging.getLogger(__name__)
QUERY_NOT_FOUND = 22
SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 0, 19, 20, 21
ANSWERS = (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED)


class RangePuller:
    """The pull of one range; `_offset` is the next offset to receive."""

    def __init__(
        self, client: ClientConfig, policy: RetryPolicy, options: PullOptions, part: QueueRange
    ) -> None:
        self._client = client
        self._options = options
        self._range = part
        self._offset = part.begin
        self._retries = retries_for(client, policy)

    def chunks(self) -> Generator[RecordChunk]:
        """Yields the range's records as they come.

        Raises DataLossError, OffsetError, ConnectionFailedError, BrokerError.
        """
        while self._offset < self._range.end:
            before = self._offset
            error: RetriableError | None = None
            try:
                with leaving_other_stores(self._client):
                    yield from self._pull_once(client_for(self._client))
            except RETRIABLE_ERRORS as failure:
                error = failure
            if self._offset > before:
                self._retries.succeeded()
            elif error is None:
                place = self._range.rest(self._offset)
                error = ConnectionFailedError(f"{place}: a pull ended without an answer")
            if error is not None:
                self._retries.pause(error)

    def _pull_once(self, client: GrpcClient) -> Iterator[RecordChunk]:
        """Yields one call's chunks. Raises ConnectionFailedError if it breaks."""
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
            # A task that takes its rows slowly outlives its calls; that is no fault.
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or self._offset == begin:
                raise client.failed(error) from error
        finally:
            call.cancel()

    def _is_gone(self, code: int) -> bool:
        """True if the broker answers that it no longer has the planned data."""
        is_recreated = self._range.topic_epoch and code == TOPIC_NOT_EXIST
        return bool(is_recreated or (self._options.recovery_id and code == QUERY_NOT_FOUND))

    def _request(self) -> broker_pb2.PullRequest:
        """Returns a request without the group.

        Tasks read ranges that the driver chose, not as members of a group.
        """
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
        """Yields the chunk of a response, if it has one. Raises OffsetError."""
        head = response.head
        is_scanned = head.pull_status == broker_pb2.NO_MATCHED_MESSAGE
        if is_scanned and not self._options.is_filtered:
            raise wrong_answer(self._range, self._offset, "no match, but the pull has no filter")
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
        """Skips the rest of the range, which is gone or replaced, perhaps with its topic.

        Raises DataLossError if the options fail on data loss.
        """
        self._lose(self._range.end, f" are gone: {reason}")

    def _skip(self, head: broker_pb2.PullResponse) -> None:
        """Skips lost messages. Raises DataLossError if the options fail on data loss.

        Raises ConnectionFailedError if the queue still holds the next message.
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
        lost = counted(end - self._offset, "message is", "messages are")
        self._lose(end, f": {lost} gone, {held}")

    def _lose(self, end: int, loss: str) -> None:
        """Skips messages up to `end`, with a warning.

        Raises DataLossError if the options fail on data loss.
        """
        text = f"{self._range.rest(self._offset)}{loss}"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}; {loss_advice()}")
        logger.warning("%s; the query continues without them", text)
        self._offset = end
