"""Body of a batch send: messages of one topic and queue.

    message size 4 | magic 4 | CRC 4 | flag 4 | body length 4 | body
    | properties length 2 | properties

The messages follow each other without gaps. Magic and CRC are 0 and never read. Source:
docs/design/remoting.md section 3.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocketpy_proto.remoting.errors import RemotingFormatError, UnencodableRemotingError

_WHAT = "batch"
_HEAD = struct.Struct(">iiiii")
_PROPERTIES_LENGTH = struct.Struct(">h")
_FIXED_BYTES = _HEAD.size + _PROPERTIES_LENGTH.size
# A broker's default limit of one send.
BATCH_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a batch. `properties` are as record.properties encodes them."""

    body: bytes | memoryview
    properties: bytes = b""
    flag: int = 0

    @property
    def size(self) -> int:
        """The message's bytes in a batch."""
        return _FIXED_BYTES + len(self.body) + len(self.properties)


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """Returns the body of SEND_BATCH_MESSAGE. Raises UnencodableRemotingError."""
    pieces: list[bytes | memoryview] = []
    for message in messages:
        try:
            head = _HEAD.pack(message.size, 0, 0, message.flag, len(message.body))
            length = _PROPERTIES_LENGTH.pack(len(message.properties))
        except struct.error as error:
            raise UnencodableRemotingError(_WHAT, str(error)) from error
        pieces += (head, message.body, length, message.properties)
    return b"".join(pieces)


def decode_batch(body: bytes | memoryview) -> list[BatchMessage]:
    """Returns the messages; their bodies are views of `body`. Raises RemotingFormatError."""
    view = memoryview(body)
    messages = []
    position = 0
    while position < len(view):
        message = _message_at(view, position)
        messages.append(message)
        position += message.size
    return messages


def split_batches(
    messages: Iterable[BatchMessage], batch_bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[list[BatchMessage]]:
    """Yields runs of messages, in order, that each fit into one batch.

    A message above `batch_bytes_max` is alone in its run, so that the broker refuses only this one.
    """
    run: list[BatchMessage] = []
    run_bytes = 0
    for message in messages:
        if run and run_bytes + message.size > batch_bytes_max:
            yield run
            run, run_bytes = [], 0
        run.append(message)
        run_bytes += message.size
    if run:
        yield run


def _message_at(view: memoryview, begin: int) -> BatchMessage:
    left = len(view) - begin
    if left < _FIXED_BYTES:
        raise RemotingFormatError(
            _WHAT,
            f"the message at byte {begin} has {left} bytes, fewer than the {_FIXED_BYTES} "
            "fixed ones",
        )
    size, _, _, flag, body_length = _HEAD.unpack_from(view, begin)
    body_begin = begin + _HEAD.size
    if not 0 <= body_length <= left - _FIXED_BYTES:
        raise RemotingFormatError(
            _WHAT,
            f"the message at byte {begin} names a body of {body_length} bytes, but {left} bytes "
            "are left in all",
        )
    body_end = body_begin + body_length
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(view, body_end)
    properties_begin = body_end + _PROPERTIES_LENGTH.size
    end = properties_begin + properties_length
    if properties_length < 0 or end > len(view) or end - begin != size:
        raise RemotingFormatError(
            _WHAT,
            f"the message at byte {begin} names properties of {properties_length} bytes and a "
            f"size of {size}, which do not agree; {left} bytes are left",
        )
    return BatchMessage(view[body_begin:body_end], bytes(view[properties_begin:end]), flag)
