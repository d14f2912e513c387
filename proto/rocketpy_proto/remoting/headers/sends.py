"""Headers of sends, send-backs and transactions.

Source: docs/design/remoting.md sections 2.4 and 2.8.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from rocketpy_proto.model import AUTO_CREATE_TOPIC
from rocketpy_proto.remoting.fields import Header
from rocketpy_proto.struct_types import Int32, Int64

# Ends of a transaction: `commit_or_rollback`.
UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12


class SendMessageRequest(Header, frozen=True):
    """SEND_MESSAGE. `is_batch`, not the code, marks a batch (record.block.batch_body)."""

    producer_group: str
    topic: str
    queue_id: Int32
    born_ms: Int64 = field(name="bornTimestamp")
    sys_flag: Int32 = 0
    flag: Int32 = 0
    # The template of a missing topic, and the maximum number of its queues.
    default_topic: str = AUTO_CREATE_TOPIC
    default_topic_queue_nums: Int32 = 4
    # Encoded by record.properties.
    properties: str | None = None
    reconsume_times: Int32 = 0
    is_unit_mode: bool = field(name="unitMode", default=False)
    max_reconsume_times: Int32 | None = None
    is_batch: bool = field(name="batch", default=False)
    broker_name: str | None = field(name="bname", default=None)


# SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE carry the same fields under one letter each.
SEND_V2_NAMES: Mapping[str, str] = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}


class SendMessageResponse(Header, frozen=True):
    """The stored message's position.

    `msg_id` has all ids of a batch, and `queue_offset` is the first message's.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = field(name="MSG_REGION", default=None)
    is_trace_on: bool | None = field(name="TRACE_ON", default=None)


class PushReplyMessageRequest(SendMessageRequest, frozen=True, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: a reply that the broker sends to the requester.

    Hosts are written as address:port.
    """

    born_host: str
    store_host: str
    store_ms: Int64 = field(name="storeTimestamp")


class ConsumerSendMsgBackRequest(Header, frozen=True):
    """CONSUMER_SEND_MSG_BACK. `offset` is of the commit log; a negative level means the DLQ."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    is_unit_mode: bool = field(name="unitMode", default=False)
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = field(name="bname", default=None)


class EndTransactionRequest(Header, frozen=True):
    """END_TRANSACTION. RocketMQ's brokers store a second message for a second commit."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    is_from_transaction_check: bool = field(name="fromTransactionCheck", default=False)
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class CheckTransactionStateRequest(Header, frozen=True):
    """CHECK_TRANSACTION_STATE, which a broker sends to a producer; the body is the half message."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class RecallMessageRequest(Header, frozen=True):
    """RECALL_MESSAGE, by the handle from the answer to a send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = field(name="bname", default=None)


class RecallMessageResponse(Header, frozen=True):
    """The unique key of the recalled message."""

    msg_id: str
