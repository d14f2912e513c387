"""Requests of a reader to brokers: offsets and records of queues.

Each function sends a request and returns at once: many may be under way. A queue that does not
exist has the offset 0, without an error; the route shows if it exists.

Source: docs/design/remoting.md sections 2.5 and 2.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import partial

import msgspec

from pyspark_rocketpy.transport.remoting.cluster.client import Cluster
from pyspark_rocketpy.transport.remoting.net.calls import RECORDS_BYTES_MAX, Call, Request
from pyspark_rocketpy.transport.remoting.net.peers import Peer, Timeouts
from pyspark_rocketpy.transport.remoting.net.responses import header_of, nothing
from rocketpy_proto.model import EVERYTHING, TAG
from rocketpy_proto.remoting import (
    EXCHANGES,
    Header,
    MessageQueue,
    RemotingCommand,
    RequestCode,
    ResponseCode,
)
from rocketpy_proto.remoting.headers.offsets import (
    LOWER,
    GetMaxOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rocketpy_proto.remoting.headers.pulls import (
    MASTER_ID,
    SUBSCRIPTION,
    SUSPEND,
    PullMessageRequest,
    PullMessageResponse,
)

# Brokers check only every 5 s if a held pull is over.
HELD_LONGER_MS_MAX = 10_000
# The most messages that a broker returns for one pull, unless its limit was raised.
PULLED_MESSAGES_MAX = 32


class PullStatus(IntEnum):
    """The outcome of a pull, by its response code."""

    FOUND = ResponseCode.SUCCESS
    # Nothing yet, or nothing in this file of the queue: the next offset follows.
    NO_NEW_MESSAGE = ResponseCode.PULL_NOT_FOUND
    # Nothing that matches. A slave also answers so for offsets that it lacks. The next offset is
    # then the requested one.
    NO_MATCHED_MESSAGE = ResponseCode.PULL_RETRY_IMMEDIATELY
    # Below the queue's start or above its end: messages are lost, or the offset is wrong.
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_PULL_CODES = frozenset(ResponseCode(status) for status in PullStatus)


class PullResult(msgspec.Struct, frozen=True):
    """Records from an offset on, back to back, as stored; [min, max) are the queue's bounds.

    Records below the requested offset, or beyond the wanted ones, may be among them. `remark` is
    the store's own name of the status.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    records: memoryview
    remark: str


class Pull(msgspec.Struct, frozen=True):
    """Parameters of a pull; `suspend_ms` > 0 waits for a message.

    The default expression matches all messages. `bytes_max` beyond RocketMQ's limit asks rocketpy's
    broker for more than 32 messages; RocketMQ's brokers ignore it.
    """

    consumer_group: str
    queue: MessageQueue
    offset: int
    count: int = PULLED_MESSAGES_MAX
    expression: str = EVERYTHING
    expression_type: str = TAG
    suspend_ms: int = 0
    broker_id: int = MASTER_ID
    bytes_max: int | None = None


def max_offset(cluster: Cluster, queue: MessageQueue, broker_id: int = MASTER_ID) -> Call[int]:
    """Returns the offset that the queue's next message will have."""
    header = GetMaxOffsetRequest(queue.topic, queue.queue_id, broker_name=queue.broker_name)
    return _ask_offset(cluster, queue, RequestCode.GET_MAX_OFFSET, header, broker_id)


def min_offset(cluster: Cluster, queue: MessageQueue, broker_id: int = MASTER_ID) -> Call[int]:
    """Returns the offset of the queue's oldest message."""
    header = QueueRequest(queue.topic, queue.queue_id, queue.broker_name)
    return _ask_offset(cluster, queue, RequestCode.GET_MIN_OFFSET, header, broker_id)


def search_offset(
    cluster: Cluster, queue: MessageQueue, store_ms: int, broker_id: int = MASTER_ID
) -> Call[int]:
    """Returns the first offset stored at `store_ms` (since 1970) or later, or else the queue's end.

    4.9 and the first 5.x answer the offset nearest in time, which may be older. The caller must
    check the record.
    """
    header = SearchOffsetRequest(queue.topic, queue.queue_id, store_ms, LOWER, queue.broker_name)
    return _ask_offset(cluster, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, broker_id)


def consumer_offset(cluster: Cluster, group: str, queue: MessageQueue) -> Call[int | None]:
    """Returns a group's committed offset; None if there is none, for which 4.9 may return 0."""
    header = QueryConsumerOffsetRequest(
        group,
        queue.topic,
        queue.queue_id,
        is_zero_if_not_found=False,
        broker_name=queue.broker_name,
    )
    request = Request(
        RequestCode.QUERY_CONSUMER_OFFSET,
        _committed,
        header,
        accepted=frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}),
    )
    return cluster.ask_owner(queue.topic, queue.broker_name, request)


def update_consumer_offset(
    cluster: Cluster, group: str, queue: MessageQueue, offset: int
) -> Call[None]:
    """Commits a group's offset at the master, which keeps it without a check of the range.

    From 5.3 on, brokers refuse an unknown group: the call's answer raises BrokerError of code 26.
    """
    header = UpdateConsumerOffsetRequest(
        group, queue.topic, queue.queue_id, offset, queue.broker_name
    )
    request = Request(RequestCode.UPDATE_CONSUMER_OFFSET, nothing, header)
    return cluster.ask_owner(queue.topic, queue.broker_name, request)


def pull(cluster: Cluster, wanted: Pull, timeouts: Timeouts) -> Call[PullResult]:
    """Pulls records of a queue without joining the group; no offset is committed.

    `timeouts` covers the broker's work; the time for which it may hold the pull is added.
    """
    return pull_all(cluster, [wanted], timeouts)[0]


def pull_all(
    cluster: Cluster, wanted: Sequence[Pull], timeouts: Timeouts
) -> list[Call[PullResult]]:
    """Sends pulls of one queue to one broker, in one write.

    The pulls must differ in offset and count alone: the rest is encoded once.
    """
    first = wanted[0]
    model = _pull_request(first, timeouts)
    fields = EXCHANGES[model.code].request.encode(model.header)
    requests = [
        Request(
            model.code,
            partial(_pulled, each),
            body_bytes_max=model.body_bytes_max,
            accepted=model.accepted,
            timeouts=model.timeouts,
            ext_fields={**fields, "queueOffset": str(each.offset), "maxMsgNums": str(each.count)},
        )
        for each in wanted
    ]
    return cluster.ask_owner_all(
        first.queue.topic, first.queue.broker_name, requests, first.broker_id
    )


def _pull_request(wanted: Pull, timeouts: Timeouts) -> Request[PullResult]:
    queue = wanted.queue
    held_ms = wanted.suspend_ms + HELD_LONGER_MS_MAX if wanted.suspend_ms else 0
    header = PullMessageRequest(
        wanted.consumer_group,
        queue.topic,
        queue.queue_id,
        wanted.offset,
        wanted.count,
        SUBSCRIPTION | (SUSPEND if wanted.suspend_ms else 0),
        suspend_timeout_ms=wanted.suspend_ms,
        subscription=wanted.expression,
        expression_type=wanted.expression_type,
        max_msg_bytes=wanted.bytes_max,
        broker_name=queue.broker_name,
    )
    return Request(
        RequestCode.PULL_MESSAGE,
        partial(_pulled, wanted),
        header,
        body_bytes_max=RECORDS_BYTES_MAX,
        accepted=_PULL_CODES,
        timeouts=Timeouts(timeouts.ms + held_ms, timeouts.option) if held_ms else timeouts,
    )


def _ask_offset(
    cluster: Cluster, queue: MessageQueue, code: RequestCode, header: Header, broker_id: int
) -> Call[int]:
    request = Request(code, partial(_offset, code), header)
    return cluster.ask_owner(queue.topic, queue.broker_name, request, broker_id)


def _offset(code: RequestCode, peer: Peer, answer: RemotingCommand) -> int:
    return header_of(peer, code, answer, OffsetResponse).offset


def _committed(peer: Peer, answer: RemotingCommand) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    offset = _offset(RequestCode.QUERY_CONSUMER_OFFSET, peer, answer)
    # An offset committed as -1 also reads as nothing.
    return offset if offset >= 0 else None


def _pulled(wanted: Pull, peer: Peer, answer: RemotingCommand) -> PullResult:
    header = header_of(peer, RequestCode.PULL_MESSAGE, answer, PullMessageResponse)
    status = PullStatus(answer.code)
    if status is PullStatus.FOUND:
        _require_progress(wanted, peer, header, answer)
    return PullResult(
        status,
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        memoryview(answer.body),
        answer.remark or "",
    )


def _require_progress(
    wanted: Pull, peer: Peer, header: PullMessageResponse, answer: RemotingCommand
) -> None:
    """Raises ConnectionFailedError for an answer without messages or without progress.

    A client that followed such an answer would pull the same again, or miss messages.
    """
    if header.next_begin_offset <= wanted.offset or not answer.body:
        raise peer.failed(
            f"makes no progress: it answers a pull from offset {wanted.offset} with "
            f"{len(answer.body)} bytes of messages and {header.next_begin_offset} as the next "
            "offset",
            is_lasting=True,
        )
