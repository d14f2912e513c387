"""Answers of the contract's methods as JSON.

Each step of the encoding takes about a millisecond. The bodies of an answer's messages take at most
BODIES_BYTES_MAX. A body beyond this limit is cut, and `bodyIsCut` marks it. A request for the
message alone shows more of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from google.protobuf.message import Message

from rocketpy_broker.contract_json import JsonField, fields_of, is_map, json_of
from rocketpy_broker.messages.json_form import body_of, head_of
from rocketpy_broker.messages.stored import Message as StoredMessage
from rocketpy_broker.runtime.scheduler import take_slot
from rocketpy_broker.server.http.api.calls import check
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.compression import inflated_or_stored

KIND = "http"
# Entries of a list, and records, per scheduler slot.
ENTRIES_A_SLOT, RECORDS_A_SLOT = 50, 20
# A message with a longer record is encoded on a thread.
SMALL_BYTES_MAX = 32 << 10
BODIES_BYTES_MAX = 4 << 20
# Characters that are encoded at once; more would hold Python's lock for milliseconds.
_STEP = 100_000
MESSAGES, STATUS = "messages", "status"


def has_messages(kind: type[Message]) -> bool:
    """True if answers of a type have records, which are messages in JSON."""
    return "records" in kind.DESCRIPTOR.fields_by_name


async def answer_json(answer: Any, entry: str = "") -> bytes:
    """Returns an answer as JSON; with `entry` the only entry of this list.

    Raises RefusedCallError for an entry that reports an error.
    """
    if not has_messages(type(answer)):
        return b"".join([each async for each in _object(_entry(answer, entry))])
    messages = [each async for each in _messages(answer)]
    if entry:
        return messages[0]
    own = b"".join([each async for each in _object(answer)])
    listed = b", ".join(messages)
    return own[:-1] + (b", " if own[1:-1] else b"") + _encoded(MESSAGES) + b": [" + listed + b"]}"


def _entry(answer: Any, entry: str) -> Any:
    if not entry:
        return answer
    (found,) = getattr(answer, entry)
    if STATUS in found.DESCRIPTOR.fields_by_name:
        check(found)
    return found


async def _object(message: Any) -> AsyncIterator[bytes]:
    """Yields the pieces of a message as JSON."""
    yield b"{"
    for number, field in enumerate(fields_of(type(message))):
        yield b", " if number else b""
        yield _encoded(field.key) + b": "
        async for piece in _values(message, field):
            yield piece
    yield b"}"


async def _values(answer: Any, field: JsonField) -> AsyncIterator[bytes]:
    """Yields the value of a field; a list of messages in slices."""
    descriptor = field.descriptor
    if not descriptor.is_repeated or descriptor.message_type is None or is_map(descriptor):
        yield _encoded(field.value(answer))
        return
    entries = getattr(answer, descriptor.name)
    yield b"["
    for begin in range(0, len(entries), ENTRIES_A_SLOT):
        if begin:
            await take_slot(KIND)
            yield b", "
        part = entries[begin : begin + ENTRIES_A_SLOT]
        yield _encoded([json_of(each) for each in part])[1:-1]
    yield b"]"


async def _messages(answer: Any) -> AsyncIterator[bytes]:
    """Yields the messages of an answer, each as JSON."""
    sizes = np.frombuffer(answer.record_sizes, ">i4").tolist()
    records, position, left = memoryview(answer.records), 0, BODIES_BYTES_MAX
    for number, size in enumerate(sizes, 1):
        message = StoredMessage.of(decode_record(records, position).record)
        position += size
        if size > SMALL_BYTES_MAX or message.sys_flag:
            encoded, taken = await asyncio.to_thread(message_json, message, left)
        else:
            encoded, taken = message_json(message, left)
        left -= taken
        yield encoded
        if number % RECORDS_A_SLOT == 0:
            await take_slot(KIND)


def message_json(message: StoredMessage, body_bytes_max: int) -> tuple[bytes, int]:
    """Returns a message as JSON, and the number of body bytes in it: at most `body_bytes_max`.

    Any thread may call it.
    """
    head = head_of(message)
    content, error = b"", None
    if body_bytes_max:
        # Only the part that is shown is inflated: the body may be a decompression bomb.
        stored = message.stored_body, message.sys_flag
        content, error = inflated_or_stored(*stored, body_bytes_max)
    shown = cut_body(content, body_bytes_max)
    if error is not None:
        head["bodyError"] = error
    if len(shown) < len(content) or (not body_bytes_max and message.stored_body):
        head["bodyIsCut"] = True
    ((key, text),) = body_of(shown).items()
    pieces = [_encoded(head)[:-1], b', "', key.encode(), b'": "', *_text_pieces(str(text)), b'"}']
    return b"".join(pieces), len(shown)


def cut_body(content: bytes, bytes_max: int) -> bytes:
    """Returns the start of a body, without a part of a character in UTF-8 at its end."""
    end = bytes_max
    if end < len(content):
        while end > max(bytes_max - 3, 0) and content[end] & 0xC0 == 0x80:
            end -= 1
    return content[:end]


def _text_pieces(text: str) -> Iterator[bytes]:
    for begin in range(0, len(text), _STEP):
        yield _encoded(text[begin : begin + _STEP])[1:-1]


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()
