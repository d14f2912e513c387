"""Messages of the client, and their records in the broker's answers."""

from __future__ import annotations

from collections.abc import Iterator

from rocketpy_broker.client.errors import UnreadableError
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, SentMessage
from rocketpy_broker.messages.stored import Message
from rocketpy_proto.record import (
    MalformedRecordError,
    RecordBlock,
    decode_record,
    decode_sizes,
)

__all__ = ["Message", "OutgoingMessage", "SentMessage", "decode_messages", "messages_of"]


def decode_messages(records: bytes | memoryview, record_sizes: bytes) -> Iterator[Message]:
    """Yields the messages of a block. Raises UnreadableError."""
    try:
        block = RecordBlock.parse(records, decode_sizes(record_sizes))
    except MalformedRecordError as error:
        raise _damaged(error) from error
    yield from messages_of(block)


def messages_of(block: RecordBlock) -> Iterator[Message]:
    """Yields the messages of a block, decoded one by one. Raises UnreadableError."""
    for position in block.positions.tolist():
        try:
            yield Message.of(decode_record(block.data.data, position).record)
        except MalformedRecordError as error:
            raise _damaged(error) from error


def _damaged(error: MalformedRecordError) -> UnreadableError:
    return UnreadableError(f"the broker's answer is damaged: {error}")
