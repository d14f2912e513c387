"""Bodies of pop consumption: assignments, modes and acknowledgements.

Source: docs/design/remoting.md section 2.8.
"""

from __future__ import annotations

from msgspec import field

from rocketpy_proto.model.consumers import MessageModel
from rocketpy_proto.remoting.fields import MessageQueue
from rocketpy_proto.struct_types import Body, Int32, Int64


class MessageQueueAssignment(Body, frozen=True):
    """A queue for a client, and the mode of reading it: PULL or POP."""

    message_queue: MessageQueue
    mode: str
    attachments: dict[str, str] | None = None


class QueryAssignmentRequestBody(Body, frozen=True):
    """QUERY_ASSIGNMENT."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class QueryAssignmentResponseBody(Body, frozen=True):
    """QUERY_ASSIGNMENT."""

    assignments: tuple[MessageQueueAssignment, ...] = field(
        name="messageQueueAssignments", default=()
    )


class SetMessageRequestModeBody(Body, frozen=True):
    """SET_MESSAGE_REQUEST_MODE: PULL or POP.

    With POP, a member also pops the queues of the next `share_count` members.
    """

    topic: str
    consumer_group: str
    mode: str = "PULL"
    share_count: Int32 = field(name="popShareQueueNum", default=0)


class BatchAck(Body, frozen=True):
    """Acknowledged messages of one check point.

    `bits` is Java's BitSet in Base64: a bit for each offset from `start_offset` on, the lowest bit
    of a byte first.
    """

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    start_offset: Int64 = field(name="so")
    queue_id: Int32 = field(name="q")
    revive_queue_id: Int32 = field(name="rq")
    pop_ms: Int64 = field(name="pt")
    invisible_ms: Int64 = field(name="it")
    bits: bytes = field(name="b")
    # The kind of the topic, as in a receipt.
    retry: str = field(name="r", default="0")


class BatchAckMessageBody(Body, frozen=True):
    """BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()
