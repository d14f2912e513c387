"""Headers of requests for offsets.

Source: docs/design/remoting.md sections 2.6 and 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64

# Ends of a search by time; an absent one means LOWER.
LOWER, UPPER = "LOWER", "UPPER"


class GetMaxOffsetRequest(Header, frozen=True):
    """GET_MAX_OFFSET. A missing queue has 0, and the code is SUCCESS."""

    topic: str
    queue_id: Int32
    is_committed: bool | None = field(name="committed", default=None)
    broker_name: str | None = field(name="bname", default=None)


class QueueRequest(Header, frozen=True):
    """GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(name="bname", default=None)


class OffsetResponse(Header, frozen=True):
    """The answer to requests for one offset."""

    offset: Int64


class EarliestStoreTimeResponse(Header, frozen=True):
    """The store time of a queue's oldest record; -1 if the queue is empty."""

    store_ms: Int64 = field(name="timestamp")


class SearchOffsetRequest(Header, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP, by store time. 4.9 always takes the nearest record."""

    topic: str
    queue_id: Int32
    store_ms: Int64 = field(name="timestamp")
    boundary_type: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class QueryConsumerOffsetRequest(Header, frozen=True):
    """QUERY_CONSUMER_OFFSET.

    If `is_zero_if_not_found` is False, a missing offset is answered with QUERY_NOT_FOUND. Otherwise
    the answer may be 0. 4.9 ignores the field.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    is_zero_if_not_found: bool | None = field(name="setZeroIfNotFound", default=None)
    broker_name: str | None = field(name="bname", default=None)


class UpdateConsumerOffsetRequest(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET; brokers do not check the range."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    broker_name: str | None = field(name="bname", default=None)


class ResetOffsetRequest(Header, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET.

    -1 has a meaning of its own: as time the end, as queue id all queues, as offset no offset.
    """

    group: str
    topic: str
    store_ms: Int64 = field(name="timestamp")
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 = -1
    broker_name: str | None = field(name="bname", default=None)
