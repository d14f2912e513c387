"""Offset queries of the planning process: bounds, times and sizes of queues.

A query is repeated at all endpoints, while retries are left, if a broker is busy or none answers.
So a stream outlives a broker's restart. A failed connection before the first answer is not
repeated: a wrong endpoint is an error at once. A query about many queues is several calls, each of
which continues after the previous one. Nothing is kept that a crash could lose.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

from pyspark_rocketpy import clock
from pyspark_rocketpy.errors import ConnectionFailedError, OtherStoreError
from pyspark_rocketpy.offsets import (
    Bounds,
    BrokerQueue,
    Epochs,
    Positions,
    QueueBounds,
    QueueRange,
)
from pyspark_rocketpy.transport.byte_shares import Measured, shares
from pyspark_rocketpy.transport.grpc_v1 import answers
from pyspark_rocketpy.transport.grpc_v1.client import (
    SUBSCRIPTION_PARSE_FAILED,
    TOPIC_NOT_EXIST,
    AnswerT,
    GrpcClient,
    check,
    client_for,
)
from pyspark_rocketpy.transport.grpc_v1.client_config import ClientConfig
from pyspark_rocketpy.transport.grpc_v1.resumed_calls import CallProgress, ask_for_all
from pyspark_rocketpy.transport.grpc_v1.retries import retried
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy, Subscription
from rocketpy_proto.call_limits import (
    ENTRIES_MAX,
    KEYS_BYTES_MAX,
    KEYS_MAX,
    OFFSET_QUERY_BYTES_MAX,
    OFFSET_QUERY_ENTRIES_MAX,
    WORK_MS_MAX,
)
from rocketpy_proto.model import SQL92
from rocketpy_proto.rocketpy.v1 import broker_pb2, broker_pb2_grpc

# A random token fits an int64.
TOKEN_BYTES = 7
_T = TypeVar("_T")
_StoreRequest: TypeAlias = (
    broker_pb2.QueryOffsetsRequest
    | broker_pb2.SearchOffsetsRequest
    | broker_pb2.FindKeysRequest
    | broker_pb2.MeasureRangesRequest
    | broker_pb2.LimitRangesRequest
)
# Longest pause before the next query, in place of a hold by the broker.
PAUSE_MS_MAX = 1_000


class GrpcOffsetQueries:
    """OffsetQueries of a rocketpy broker."""

    def __init__(
        self,
        config: ClientConfig,
        retries: RetryPolicy,
        *,
        client_of: Callable[[ClientConfig], GrpcClient] = client_for,
    ) -> None:
        self._config = config
        self._retries = retries
        self._client_of = client_of
        self._answered = False
        self._store_id = ""
        self._recovery_id = ""

    @property
    def store_id(self) -> str:
        """The store; see OffsetQueries."""
        return self._store_id

    @property
    def recovery_id(self) -> str:
        """The recovery; see OffsetQueries."""
        return self._recovery_id

    @property
    def unanswered(self) -> None:
        """Always None: one broker has all queues."""
        return None

    def require_store(self, store_id: str) -> None:
        """Implements OffsetQueries."""
        self._store_id = store_id or self._store_id

    def _connected(self, config: ClientConfig) -> GrpcClient:
        """Returns the client.

        A connection that fails before the first answer raises a lasting error.
        """
        try:
            return self._client_of(config)
        except ConnectionFailedError as error:
            is_lasting = error.is_lasting or not self._answered
            raise ConnectionFailedError(str(error), is_lasting=is_lasting) from error

    def _query(self, call: Callable[[GrpcClient], _T]) -> _T:
        """Returns the result of a call, repeated within the retries."""
        answer = retried(self._config, self._retries, call, self._connected)
        self._answered = True
        return answer

    def _answer(
        self,
        method: Callable[[broker_pb2_grpc.BrokerStub], Callable[..., AnswerT]],
        request: _StoreRequest,
        checked: Callable[[AnswerT], None],
        work_ms_max: int = WORK_MS_MAX,
    ) -> AnswerT:
        """Returns the answer to a request that may take the broker up to `work_ms_max`.

        The request names its store. `checked` raises for an unusable answer.
        """
        request.store_id = self._store_id
        timeout_ms = self._config.connect_timeout_ms + work_ms_max

        def ask(client: GrpcClient) -> AnswerT:
            response = client.query(method, request, timeout_ms)
            checked(response)
            return response

        return self._query(ask)

    def bounds(
        self,
        subscription: Subscription,
        known: Bounds | None = None,
        wait_ms_max: int = 0,
        recovery_id: str = "",
    ) -> Bounds:
        """Returns bounds and committed offsets of every queue of the topics that exist.

        The broker may hold the call up to `wait_ms_max`, until they differ from `known`. If
        `known` exceeds the broker's limits, the request omits it, and this method waits instead.
        """
        request = broker_pb2.QueryOffsetsRequest(
            topics=subscription.named,
            topic_pattern=subscription.topic_pattern or "",
            consumer_group=subscription.consumer_group,
            wait_ms_max=wait_ms_max,
            recovery_id=recovery_id,
        )
        for topic, queues in (known or {}).items() if wait_ms_max else ():
            for queue, there in queues.items():
                request.known.add(
                    topic=topic,
                    queue_id=queue.queue_id,
                    max_offset=there.max_offset,
                    topic_epoch=there.topic_epoch,
                )
        if len(request.known) > OFFSET_QUERY_ENTRIES_MAX or (
            request.ByteSize() > OFFSET_QUERY_BYTES_MAX
        ):
            request.ClearField("known")
            request.ClearField("wait_ms_max")
            clock.sleep_ms(min(wait_ms_max, PAUSE_MS_MAX))
        checked = partial(self._check_bounds, subscription.named)
        asked_ms = clock.monotonic_ms()
        response = self._answer(lambda stub: stub.QueryOffsets, request, checked, wait_ms_max)
        self.require_store(response.store_id)
        self._recovery_id = response.recovery_id
        found = _bounds(response)
        if request.wait_ms_max and found == known:
            # Pauses after a call that the broker did not hold.
            held_ms = clock.monotonic_ms() - asked_ms
            clock.sleep_ms(max(min(wait_ms_max, PAUSE_MS_MAX) - held_ms, 0))
        return found

    def _check_bounds(
        self, named: Sequence[str], response: broker_pb2.QueryOffsetsResponse
    ) -> None:
        """Raises BrokerError, and OtherStoreError if another store has answered."""
        if self._store_id and response.store_id not in {"", self._store_id}:
            raise OtherStoreError(
                f"the query reads store {self._store_id}, but store {response.store_id} answered; "
                "set option endpoints to the addresses of one broker"
            )
        answers.check_topics(response, named)

    def hidden_bounds(self, queues: Positions, recovery_id: str = "") -> Bounds:
        """Implements OffsetQueries."""
        asked = [(topic, queue) for topic, its in queues.items() for queue in its]
        found: Bounds = {}
        for begin in range(0, len(asked), ENTRIES_MAX):
            part = asked[begin : begin + ENTRIES_MAX]
            topics = list(dict.fromkeys(topic for topic, _ in part))
            request = broker_pb2.QueryOffsetsRequest(topics=topics, recovery_id=recovery_id)
            for topic, queue in part:
                request.hidden_queues.add(topic=topic, queue_id=queue.queue_id)
            checked = partial(self._check_bounds, topics)
            answer = _bounds(self._answer(lambda stub: stub.QueryOffsets, request, checked))
            for topic, queue in part:
                if queue in answer.get(topic, {}):
                    found.setdefault(topic, {})[queue] = answer[topic][queue]
        return found

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """Implements OffsetQueries."""
        offsets: list[int | None] = []

        def ask(_number: int, part: Sequence[QueueTime]) -> CallProgress[QueueTime]:
            request = broker_pb2.SearchOffsetsRequest()
            for time in part:
                request.queues.add(
                    topic=time.topic, queue_id=time.queue_id, timestamp_ms=time.timestamp_ms
                )
            checked = partial(answers.check_found, count_max=len(part))
            response = self._answer(lambda stub: stub.SearchOffsets, request, checked)
            offsets.extend(found.offset if found.found else None for found in response.offsets)
            return CallProgress(len(response.offsets))

        ask_for_all(times, ask, "queues were searched")
        return offsets

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """Implements OffsetQueries."""
        measures = self._measure(ranges, bytes_max)
        if sum(each.bytes_estimated for each in measures) <= bytes_max:
            return [part.end for part in ranges]
        return self._limit(ranges, shares(measures, bytes_max))

    def _measure(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[Measured]:
        """Returns measures that are exact, up to `bytes_max` bytes in all."""
        measures = [Measured()] * len(ranges)
        left = bytes_max

        def ask(first: int, part: Sequence[QueueRange]) -> CallProgress[QueueRange]:
            nonlocal left
            request = broker_pb2.MeasureRangesRequest(ranges=_wire(part), bytes_max=max(left, 0))
            checked = partial(answers.check_measures, ranges=part)
            response = self._answer(lambda stub: stub.MeasureRanges, request, checked)
            for number, each in enumerate(response.ranges, first):
                measures[number] = measures[number].joined(_measured(each))
                left -= each.bytes
            return _progress(part, [each.end for each in response.ranges], response.goes_on)

        ask_for_all(ranges, ask, "ranges were measured")
        return measures

    def _limit(self, ranges: Sequence[QueueRange], budgets: Sequence[int]) -> list[int]:
        """Returns the end that each range reaches with its bytes."""
        ends = [part.begin for part in ranges]
        left = list(budgets)

        def ask(first: int, part: Sequence[QueueRange]) -> CallProgress[QueueRange]:
            request = broker_pb2.LimitRangesRequest(
                ranges=_wire(part), bytes_max=left[first : first + len(part)]
            )
            checked = partial(answers.check_limits, ranges=part)
            response = self._answer(lambda stub: stub.LimitRanges, request, checked)
            for number, taken in enumerate(response.bytes, first):
                ends[number] = response.ends[number - first]
                left[number] -= taken
            return _progress(part, response.ends, response.goes_on)

        ask_for_all(ranges, ask, "ranges were limited")
        return ends

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        """Returns the parts of the ranges, in order, that may hold messages with one of the keys.

        More keys than the broker looks up are not sent: the whole ranges are returned.
        """
        if len(keys) > KEYS_MAX or sum(len(key.encode()) for key in keys) > KEYS_BYTES_MAX:
            return list(ranges)
        parts: list[QueueRange] = []

        def ask(_number: int, part: Sequence[QueueRange]) -> CallProgress[QueueRange]:
            request = broker_pb2.FindKeysRequest(ranges=_wire(part), keys=keys)
            checked = partial(answers.check_parts, ranges=part)
            response = self._answer(lambda stub: stub.FindKeys, request, checked)
            parts.extend(
                QueueRange(each.topic, each.queue_id, each.begin, each.end)
                for each in response.ranges
            )
            return CallProgress(response.range_count)

        ask_for_all(ranges, ask, "ranges were searched")
        return parts

    def expression_fault(self, expression: str) -> str | None:
        """Returns the fault of an SQL92 expression and its place, in the broker's words."""
        request = broker_pb2.CheckFilterRequest(expression_type=SQL92, expression=expression)
        timeout_ms, accepted = self._config.connect_timeout_ms, {SUBSCRIPTION_PARSE_FAILED}
        response: broker_pb2.CheckFilterResponse = self._query(
            lambda client: client.query(
                lambda stub: stub.CheckFilter, request, timeout_ms, accepted
            )
        )
        is_refused = response.status.code == SUBSCRIPTION_PARSE_FAILED
        return response.status.remark if is_refused else None

    def broker_name(self) -> str:
        """Implements OffsetQueries."""
        return self._query(lambda client: client.broker_name)

    def commit(self, group: str, positions: Positions, epochs: Epochs) -> None:
        """Implements OffsetQueries."""
        entries = [
            broker_pb2.CommittedOffset(
                topic=topic,
                queue_id=queue.queue_id,
                offset=offset,
                topic_epoch=epochs.get(topic, 0),
            )
            for topic, queues in positions.items()
            for queue, offset in queues.items()
        ]
        report = broker_pb2.SparkReport(
            token=int.from_bytes(os.urandom(TOKEN_BYTES), "big") + 1,
            driver_host=socket.gethostname(),
        )
        # A request has a size limit, and queues are independent of each other.
        for begin in range(0, len(entries), ENTRIES_MAX) or [0]:
            self._commit_once(group, entries[begin : begin + ENTRIES_MAX], report)

    def _commit_once(
        self,
        group: str,
        entries: Sequence[broker_pb2.CommittedOffset],
        report: broker_pb2.SparkReport,
    ) -> None:
        request = broker_pb2.CommitOffsetsRequest(
            consumer_group=group, offsets=entries, store_id=self._store_id, spark_report=report
        )
        timeout_ms = self._config.connect_timeout_ms
        self._query(
            lambda client: client.query(lambda stub: stub.CommitOffsets, request, timeout_ms)
        )


def _wire(ranges: Sequence[QueueRange]) -> list[broker_pb2.OffsetRange]:
    return [
        broker_pb2.OffsetRange(
            topic=part.topic, queue_id=part.queue_id, begin=part.begin, end=part.end
        )
        for part in ranges
    ]


def _measured(each: broker_pb2.MeasuredRange) -> Measured:
    return Measured(
        each.bytes,
        each.offset_count,
        each.offset_count_left,
        each.first_bytes,
        each.first_physical_offset,
    )


def _progress(
    ranges: Sequence[QueueRange],
    ends: Sequence[int],
    goes_on: bool,
) -> CallProgress[QueueRange]:
    """Returns the progress up to these ends; the last range may be done in part."""
    if not goes_on or not ends:
        return CallProgress(len(ends))
    last = len(ends) - 1
    return CallProgress(last, replace(ranges[last], begin=ends[last]))


def _bounds(response: broker_pb2.QueryOffsetsResponse) -> Bounds:
    bounds: Bounds = {}
    for topic in response.topics:
        if topic.status.code != TOPIC_NOT_EXIST:
            check(topic.status)
            bounds[topic.topic] = {
                BrokerQueue("", queue.queue_id): QueueBounds(
                    queue.min_offset,
                    queue.max_offset,
                    queue.committed_offset,
                    topic.topic_epoch,
                    queue.cut_offset if queue.HasField("cut_offset") else None,
                    is_lagging=response.slave,
                    is_hidden=is_hidden,
                )
                for queues, is_hidden in ((topic.queues, False), (topic.hidden_queues, True))
                for queue in queues
            }
    return bounds
