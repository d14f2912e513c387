"""Messages on pages: rows of lists, and views of one body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocketpy_broker.messages.json_form import head_of, text_of
from rocketpy_broker.messages.stored import Message
from rocketpy_broker.server.http.api.answers import cut_body
from rocketpy_broker.server.http.console.renderer import counted
from rocketpy_proto.record import decode_record
from rocketpy_proto.record.compression import inflated_or_stored
from rocketpy_proto.record.sys_flag import COMPRESSED

# Bytes of a body in a list, and on its own page as text and in hex.
START_BYTES_MAX, TEXT_BYTES_MAX, HEX_BYTES_MAX = 200, 64 << 10, 4 << 10
# Limits of a body as folded JSON.
NODES_MAX, DEPTH_MAX, VALUE_CHARACTERS_MAX = 500, 20, 2_000
_HEX_LINE = 16


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value in JSON with its name in the object or list that holds it.

    `text` is the value, or the number of its `inner` values. `left_out` of them are not shown.
    """

    name: str
    text: str
    inner: tuple[JsonNode, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class BodyView:
    """The views of a body: `text` and `json` are None for another content.

    `error` is the `body_error` of Message.
    """

    text: str | None
    json: JsonNode | None
    hex: str
    stored_bytes: int
    is_compressed: bool
    is_cut: bool
    error: str | None


def messages_of(answer: Any) -> Iterator[tuple[Message, int]]:
    """Yields the messages of an answer with records, and the sizes of their records."""
    records, position = memoryview(answer.records), 0
    for size in np.frombuffer(answer.record_sizes, ">i4").tolist():
        yield Message.of(decode_record(records, position).record), size
        position += size


async def rows_of(answer: Any) -> list[dict[str, Any]]:
    """Returns the messages of an answer as a list shows them: JSON with the start of the body."""
    # Long and compressed records take milliseconds.
    return await asyncio.to_thread(lambda: [row_of(*each) for each in messages_of(answer)])


def row_of(message: Message, size: int) -> dict[str, Any]:
    """Returns a message as JSON, with `start` of its body and the `size` of its record."""
    content, _ = inflated_or_stored(message.stored_body, message.sys_flag, START_BYTES_MAX)
    start = cut_body(content, START_BYTES_MAX)
    text = text_of(start)
    return {**head_of(message), "start": start.hex(" ") if text is None else text, "size": size}


def body_view(message: Message) -> BodyView:
    """Returns the views of a message's body. Any thread may call it."""
    stored = message.stored_body
    # Only the part that is shown is inflated: the body may be a decompression bomb.
    content, error = inflated_or_stored(stored, message.sys_flag, TEXT_BYTES_MAX)
    shown = cut_body(content, TEXT_BYTES_MAX)
    is_cut = len(shown) < len(content)
    text = text_of(shown)
    return BodyView(
        text=text,
        json=None if text is None or is_cut else json_node(text),
        hex="\n".join(_hex_lines(shown[:HEX_BYTES_MAX])),
        stored_bytes=len(stored),
        is_compressed=bool(message.sys_flag & COMPRESSED) and error is None,
        is_cut=is_cut,
        error=error,
    )


def _hex_lines(content: bytes) -> Iterator[str]:
    for begin in range(0, len(content), _HEX_LINE):
        part = content[begin : begin + _HEX_LINE]
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{begin:08x}  {part.hex(' '):<{3 * _HEX_LINE - 1}}  {characters}"


# --- JSON ---


class _Number(str):
    """A number as it is written; Python's would lose digits."""

    __slots__ = ()


def json_node(text: str) -> JsonNode | None:
    """Returns an object or list in JSON; None for any other text."""
    try:
        found = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None
    return _Nodes().node("", found, 0) if isinstance(found, dict | list) else None


class _Nodes:
    """The nodes of one body, at most NODES_MAX."""

    def __init__(self) -> None:
        self._left = NODES_MAX

    def node(self, name: str, value: object, depth: int) -> JsonNode:
        """Returns the node of a value at a depth of nesting."""
        self._left -= 1
        if isinstance(value, dict):
            named = ((_quoted(key), each) for key, each in value.items())
            return self._outer(name, named, len(value), depth)
        if isinstance(value, list):
            numbered = ((str(number), each) for number, each in enumerate(value))
            return self._outer(name, numbered, len(value), depth)
        return JsonNode(name, _shortened(value if isinstance(value, _Number) else _quoted(value)))

    def _outer(
        self, name: str, values: Iterable[tuple[str, object]], count: int, depth: int
    ) -> JsonNode:
        inner: list[JsonNode] = []
        for key, value in values if depth < DEPTH_MAX else ():
            if self._left <= 0:
                break
            inner.append(self.node(_shortened(key), value, depth + 1))
        return JsonNode(name, counted(count, "value"), tuple(inner), count - len(inner))


def _quoted(value: object) -> str:
    """Returns a value in JSON, in ASCII if it has characters that do not print."""
    is_plain = not isinstance(value, str) or value.isprintable()
    return json.dumps(value, ensure_ascii=not is_plain)


def _shortened(text: str) -> str:
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}…"
