"""Parts of consumers' requests: names, filters and hold times.

A held call ends before the client's deadline. Some SDKs set that to the requested hold time.
Source: ReceiveMessageActivity, docs/design/grpc_v2_semantics.md sections 8.2 and 8.4.
"""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from rocketpy_broker.server.apache_v2.name_rules import check_group, check_topic
from rocketpy_broker.server.apache_v2.request_context import RequestContext
from rocketpy_broker.server.apache_v2.status import StatusError
from rocketpy_broker.services.filters.service import FilterText
from rocketpy_broker.services.filters.tags import ALL_TAGS
from rocketpy_proto.apache.rocketmq.v2 import definition_pb2 as v2
from rocketpy_proto.model import SQL92, TAG

WAIT_MS_MIN, WAIT_MS_MAX = 5_000, 20_000
# The time between the answer and the client's deadline.
MARGIN_MS = 500
REQUEST_TIMEOUT_MS = 3_000
# Clients from this version on know ILLEGAL_POLLING_TIME; RocketMQ compares the texts.
FIRST_VERSION = "5.0.3"
# A held call keeps the text and its compiled form.
EXPRESSION_CHARACTERS_MAX = 8_192
# Bytes that it keeps of each character.
TEXT_FACTOR = 8


def milliseconds(duration: Duration | Timestamp) -> int:
    """Returns a duration, or a time since 1970, in whole ms."""
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def receive_wait_ms(timeout_ms: int | None, caller: RequestContext) -> int:
    """Returns the longest wait of a receive; without `timeout_ms` it follows from the deadline.

    Raises StatusError for a deadline that is too close.
    """
    left_ms = caller.remaining_ms
    if left_ms is None:
        return WAIT_MS_MAX if timeout_ms is None else _clamped(timeout_ms)
    wait_ms = _clamped(left_ms - REQUEST_TIMEOUT_MS / 2 if timeout_ms is None else timeout_ms)
    if left_ms < min(wait_ms, WAIT_MS_MIN):
        is_new = caller.version >= FIRST_VERSION
        raise StatusError(
            v2.ILLEGAL_POLLING_TIME if is_new else v2.BAD_REQUEST,
            f"the deadline of the call is {left_ms:.0f} ms away, minimum {WAIT_MS_MIN}. Set a "
            "longer timeout",
        )
    return before_deadline_ms(wait_ms, caller)


def before_deadline_ms(wait_ms: int, caller: RequestContext) -> int:
    """Returns a wait that ends before the client's deadline; 0 without time for it."""
    left_ms = caller.remaining_ms
    return wait_ms if left_ms is None else max(min(wait_ms, int(left_ms) - MARGIN_MS), 0)


def _clamped(wait_ms: float) -> int:
    return int(min(max(wait_ms, WAIT_MS_MIN), WAIT_MS_MAX))


def group_and_topic(
    caller: RequestContext, group: v2.Resource, topic: v2.Resource
) -> tuple[str, str]:
    """Returns the broker's names of a group and a topic. Raises StatusError."""
    names = caller.name_of(group), caller.name_of(topic)
    check_group(names[0])
    check_topic(names[1])
    return names


def filter_text(expression: v2.FilterExpression) -> FilterText:
    """Returns the filter of a request; an empty one selects all messages. Raises StatusError."""
    text = expression.expression
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise StatusError(
            v2.ILLEGAL_FILTER_EXPRESSION,
            f"the filter expression has {len(text)} characters, limit {EXPRESSION_CHARACTERS_MAX}. "
            "Send a shorter one",
        )
    if expression.type in {v2.FILTER_TYPE_UNSPECIFIED, v2.TAG}:
        return FilterText(TAG, text or ALL_TAGS)
    if expression.type != v2.SQL:
        raise StatusError(
            v2.ILLEGAL_FILTER_EXPRESSION,
            f"the type of the filter is {expression.type}, accepted are TAG and SQL",
        )
    if not text.strip():
        raise StatusError(
            v2.ILLEGAL_FILTER_EXPRESSION, "the SQL expression is empty; write a condition"
        )
    return FilterText(SQL92, text)
