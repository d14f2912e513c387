"""Headers of requests for offsets. Source: docs/design/remoting.md section 2.6 and 2.8. Holds no state."""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header, Int32, Int64

# Where a search by time ends: LOWER is what is absent, too.
LOWER, UPPER = "LOWER", "UPPER"


class GetMaxOffsetRequest(Header, frozen=True):
    """GET_MAX_OFFSET. A queue that is not there has 0, and the code is SUCCESS."""

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
    """What the requests for one offset answer."""

    offset: Int64


class EarliestStoreTimeResponse(Header, frozen=True):
    """The store time of a queue's oldest record; -1 where it has none."""

    store_ms: Int64 = field(name="timestamp")


class SearchOffsetRequest(Header, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP, by store time. 4.9 takes the nearest, whatever is asked."""

    topic: str
    queue_id: Int32
    store_ms: Int64 = field(name="timestamp")
    boundary_type: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class QueryConsumerOffsetRequest(Header, frozen=True):
    """QUERY_CONSUMER_OFFSET. Only False tells a missing offset from 0, and not at 4.9."""

    consumer_group: str
    topic: str
    queue_id: Int32
    is_zero_if_not_found: bool | None = field(name="setZeroIfNotFound", default=None)
    broker_name: str | None = field(name="bname", default=None)


class UpdateConsumerOffsetRequest(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET, which brokers take without a look at the range."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    broker_name: str | None = field(name="bname", default=None)


class ResetOffsetRequest(Header, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET. -1 as time is the end, as queue all, as offset none."""

    group: str
    topic: str
    store_ms: Int64 = field(name="timestamp")
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 = -1
    broker_name: str | None = field(name="bname", default=None)
