"""Headers of pop consumption, of 5.x only.

Their codes do not fit a binary header, so these commands have JSON headers. Source:
docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64

ANY_QUEUE = -1
# Start positions of a new group: `init_mode`.
INIT_MIN, INIT_MAX = 0, 1


class PopMessageRequest(Header, frozen=True):
    """POP_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_ms: Int64 = field(name="invisibleTime")
    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(name="bornTime")
    init_mode: Int32
    expression_type: str | None = field(name="expType", default=None)
    expression: str | None = field(name="exp", default=None)
    is_order: bool | None = field(name="order", default=None)
    attempt_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class PopMessageResponse(Header, frozen=True):
    """POP_MESSAGE and PEEK_MESSAGE; the records are the body."""

    pop_ms: Int64 = field(name="popTime")
    invisible_ms: Int64 = field(name="invisibleTime")
    revive_queue_id: Int32 = field(name="reviveQid")
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(Header, frozen=True):
    """ACK_MESSAGE. `extra_info` is the record's POP_CK."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    broker_name: str | None = field(name="bname", default=None)


class ChangeInvisibleTimeRequest(Header, frozen=True):
    """CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_ms: Int64 = field(name="invisibleTime")
    broker_name: str | None = field(name="bname", default=None)


class ChangeInvisibleTimeResponse(Header, frozen=True):
    """The parts of the next receipt."""

    pop_ms: Int64 = field(name="popTime")
    invisible_ms: Int64 = field(name="invisibleTime")
    revive_queue_id: Int32 = field(name="reviveQid")


class PeekMessageRequest(Header, frozen=True):
    """PEEK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    broker_name: str | None = field(name="bname", default=None)


class NotificationRequest(Header, frozen=True):
    """NOTIFICATION: a query for messages that a pop would find."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_ms: Int64 = field(name="pollTime")
    born_ms: Int64 = field(name="bornTime")
    is_order: bool | None = field(name="order", default=None)
    attempt_id: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class NotificationResponse(Header, frozen=True):
    """The presence of a message, and of too many waiting requests."""

    has_msg: bool
    is_polling_full: bool | None = field(name="pollingFull", default=None)


class PollingInfoRequest(Header, frozen=True):
    """POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32
    broker_name: str | None = field(name="bname", default=None)


class PollingInfoResponse(Header, frozen=True):
    """The number of waiting requests."""

    polling_num: Int32
