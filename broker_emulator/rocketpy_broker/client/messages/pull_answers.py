"""Messages of the broker's answers to pulls."""

from __future__ import annotations

from collections.abc import Iterator

from rocketpy_broker.client.connection import raise_refusal
from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.client.messages.model import messages_of
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.model.codes import ResponseCode
from rocketpy_proto.pull_wire import PullResponseParts
from rocketpy_proto.record import (
    QueueSpan,
    RecordBlock,
    RecordError,
    UnexpectedRecordsError,
    decode_sizes,
)
from rocketpy_proto.rocketpy.v1 import broker_pb2

# Codes for messages that were removed or are not yet stored.
_WITHOUT_MESSAGES = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def pulled_messages(
    request: broker_pb2.PullRequest, offset: int, response: PullResponseParts
) -> tuple[Iterator[Message], int]:
    """Returns the messages of an answer from `offset` on, and the offset after them.

    The request has no filter, so messages of an answer have no gaps. An answer about removed
    messages has none, and the offset moves past them. Raises RefusedError, UnreadableError.
    """
    head = response.head
    is_unmatched = head.pull_status == broker_pb2.NO_MATCHED_MESSAGE
    if head.status.code not in _WITHOUT_MESSAGES:
        raise_refusal(head.status)
    elif not is_unmatched:
        return iter(()), max(offset, head.next_offset)
    end = head.next_offset
    try:
        if is_unmatched or not offset < end <= request.offset_end:
            raise UnexpectedRecordsError(f"the answer's next offset is {end}")
        block = RecordBlock.parse(response.records[0], decode_sizes(head.record_sizes))
        span = QueueSpan(request.topic, request.queue_id, offset, end)
        block.verify_span(span, is_gapless=True)
    except RecordError as error:
        raise UnreadableError(
            f"offsets [{offset}, {request.offset_end}) of queue {request.queue_id} of topic "
            f"{request.topic!r}: the broker did not send the requested messages: {error}"
        ) from error
    return messages_of(block), end
