"""Offset queries of the planning process: bounds, times and sizes of queues.

A query that finds no broker is repeated, at all endpoints, while retries are left, so that a stream
outlives a broker's restart. Only the very first one is not: a wrong endpoint is told at once.
Nothing is kept that a crash could lose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from pyspark_rocketpy.errors import ConnectionFailedError
from pyspark_rocketpy.offsets import Bounds, Positions, QueueBounds, QueueRange
from pyspark_rocketpy.transport.grpc_v1.client import (
    TOPIC_NOT_EXIST,
    BrokerClient,
    ClientConfig,
    check,
    client_for,
    forget_client,
)
from pyspark_rocketpy.transport.grpc_v1.retrying import retries_for
from pyspark_rocketpy.transport.values import QueueTime, RetryPolicy, Subscription
from rocketpy_proto.rocketpy.v1 import broker_pb2

_T = TypeVar("_T")


class GrpcOffsetQueries:
    """See OffsetQueries."""

    def __init__(
        self,
        config: ClientConfig,
        retries: RetryPolicy,
        *,
        client_of: Callable[[ClientConfig], BrokerClient] = client_for,
    ) -> None:
        self._config = config
        self._retries = retries
        self._timeout = config.connect_timeout_ms / 1000
        self._client_of = client_of
        self._answered = False

    def _query(self, call: Callable[[BrokerClient], _T]) -> _T:
        """The answer to a call, made as often as the retries allow."""
        retries = retries_for(self._config, self._retries)
        while True:
            try:
                answer = self._query_once(call)
            except ConnectionFailedError as error:
                if not self._answered:
                    raise
                retries.pause(error)
            else:
                self._answered = True
                return answer

    def _query_once(self, call: Callable[[BrokerClient], _T]) -> _T:
        client = self._client_of(self._config)
        try:
            return call(client)
        except grpc.RpcError as error:
            forget_client(self._config)
            raise client.failed(error) from error

    def bounds(
        self, subscription: Subscription, known: Bounds | None = None, wait_ms_max: int = 0
    ) -> Bounds:
        """Bounds and committed offsets of every queue of the topics that exist.

        With `wait_ms_max` only when they differ from those known, or when it has passed.
        """
        request = broker_pb2.QueryOffsetsRequest(
            topics=subscription.topics,
            topic_pattern=subscription.topic_pattern or "",
            consumer_group=subscription.consumer_group,
            wait_ms_max=wait_ms_max,
        )
        for topic, queues in (known or {}).items() if wait_ms_max else ():
            for queue_id, queue in queues.items():
                request.known.add(topic=topic, queue_id=queue_id, max_offset=queue.max_offset)
        timeout = self._timeout + wait_ms_max / 1000
        response = self._query(lambda client: client.broker.QueryOffsets(request, timeout=timeout))
        check(response.status)
        return _bounds(response)

    def search(self, times: Sequence[QueueTime]) -> list[int | None]:
        """The first offset of each queue stored at or after its time; None where there is none."""
        request = broker_pb2.SearchOffsetsRequest()
        for time in times:
            request.queues.add(
                topic=time.topic, queue_id=time.queue_id, timestamp_ms=time.timestamp_ms
            )
        response = self._query(
            lambda client: client.broker.SearchOffsets(request, timeout=self._timeout)
        )
        check(response.status)
        return [found.offset if found.found else None for found in response.offsets]

    def limit_bytes(self, ranges: Sequence[QueueRange], bytes_max: int) -> list[int]:
        """The end of each range, cut back so that all their records have at most `bytes_max`."""
        request = broker_pb2.LimitRangesRequest(ranges=_wire(ranges), bytes_max=bytes_max)
        response = self._query(
            lambda client: client.broker.LimitRanges(request, timeout=self._timeout)
        )
        check(response.status)
        return list(response.ends)

    def find_keys(self, ranges: Sequence[QueueRange], keys: Sequence[str]) -> list[QueueRange]:
        """The parts of the ranges in which messages with one of the keys can be, in their order."""
        request = broker_pb2.FindKeysRequest(ranges=_wire(ranges), keys=keys)
        response = self._query(
            lambda client: client.broker.FindKeys(request, timeout=self._timeout)
        )
        check(response.status)
        return [
            QueueRange(part.topic, part.queue_id, part.begin, part.end) for part in response.ranges
        ]

    def broker_name(self) -> str:
        """The name of the broker that answers, as machine rooms have it before an @."""
        return self._query(lambda client: client.broker_name)

    def commit(self, group: str, positions: Positions) -> None:
        """Report a group's progress; sent once, since the next report says more."""
        request = broker_pb2.CommitOffsetsRequest(consumer_group=group)
        for topic, queues in positions.items():
            for queue_id, offset in queues.items():
                request.offsets.add(topic=topic, queue_id=queue_id, offset=offset)
        response = self._query_once(
            lambda client: client.broker.CommitOffsets(request, timeout=self._timeout)
        )
        check(response.status)


def _wire(ranges: Sequence[QueueRange]) -> list[broker_pb2.OffsetRange]:
    return [
        broker_pb2.OffsetRange(
            topic=part.topic, queue_id=part.queue_id, begin=part.begin, end=part.end
        )
        for part in ranges
    ]


def _bounds(response: broker_pb2.QueryOffsetsResponse) -> Bounds:
    bounds: Bounds = {}
    for topic in response.topics:
        if topic.status.code != TOPIC_NOT_EXIST:
            check(topic.status)
            bounds[topic.topic] = {
                queue.queue_id: QueueBounds(
                    queue.min_offset, queue.max_offset, queue.committed_offset
                )
                for queue in topic.queues
            }
    return bounds
