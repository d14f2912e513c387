"""Property names that belong to clients' libraries and brokers.

Users cannot send them, and delivered messages have them in their system properties, if at all.
Source: MessageConst, docs/design/grpc_v2_semantics.md section 7.1.
"""

from __future__ import annotations

from rocketpy_broker.services.transactions.messages import FIRST_HALF, IMMUNITY_SECONDS
from rocketpy_proto.record.properties import (
    KEYS,
    NOT_COPIED_NAMES,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)

BORN_HOST = "__BORNHOST"
TRACE_CONTEXT = "TRACE_CONTEXT"
DEAD_LETTER_TOPIC, DEAD_LETTER_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
RESERVED_NAMES = NOT_COPIED_NAMES | {
    *(KEYS, TAGS, UNIQ_KEY, SHARDING_KEY, TRACE_CONTEXT, PRIORITY, IMMUNITY_SECONDS),
    FIRST_HALF,
    *("BUYER_ID", "INSTANCE_ID", "DUP_INFO", "EXTEND_UNIQ_INFO", "MSG_TYPE"),
    *("TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG"),
    # Of requests with replies.
    *("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL"),
}
