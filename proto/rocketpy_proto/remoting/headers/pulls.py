"""Headers of pulls and message look-ups.

Source: docs/design/remoting.md sections 2.5 and 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64

# Bits of a pull's `sys_flag`.
COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4
CLASS_FILTER = 8
LITE_PULL = 16

MASTER_ID = 0


class PullMessageRequest(Header, frozen=True):
    """PULL_MESSAGE, LITE_PULL_MESSAGE. `sub_version` (ms) matters only without SUBSCRIPTION."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64 = 0
    suspend_timeout_ms: Int64 = field(name="suspendTimeoutMillis", default=0)
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    # RocketMQ's own spelling.
    proxy_forward_client_id: str | None = field(name="proxyFrowardClientId", default=None)
    broker_name: str | None = field(name="bname", default=None)


class PullMessageResponse(Header, frozen=True):
    """PULL_MESSAGE, also with codes 19, 20 and 21. The body is the stored records."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    # The addend to each record's queue offset, for static topics.
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageRequest(Header, frozen=True):
    """QUERY_MESSAGE. The index compares hashes, so records of other keys may be found."""

    topic: str
    key: str
    max_num: Int32
    begin_ms: Int64 = field(name="beginTimestamp")
    end_ms: Int64 = field(name="endTimestamp")
    # It must be left out with ACL: some brokers do not count it in a signature
    # (docs/design/remoting.md section 5.1).
    is_unique_key_query: bool | None = field(name="_UNIQUE_KEY_QUERY", default=None)
    broker_name: str | None = field(name="bname", default=None)


class QueryMessageResponse(Header, frozen=True):
    """The position in the commit log that the index has reached. The body is the records."""

    index_last_update_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_last_update_physical_offset: Int64 = field(name="indexLastUpdatePhyoffset")


class ViewMessageRequest(Header, frozen=True):
    """VIEW_MESSAGE_BY_ID, by the offset in the commit log; the answer's body is the record."""

    offset: Int64
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)
