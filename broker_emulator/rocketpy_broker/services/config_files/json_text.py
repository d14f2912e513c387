"""JSON text in fastjson's layout, as in RocketMQ's configuration files.

One field per line, sorted by name, without nulls. Arrays, and maps with queue ids or levels as
keys, are on one line. The text is ASCII, so Java reads it with any default charset.
Source: RemotingSerializable.toJson(true), docs/design/storage.md section 11.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import msgspec

_ENCODER = msgspec.json.Encoder()
# A table is a field of the file, and each entry is a field of the table.
ENTRY_LINE = b"\n\t\t"


def field_text(name: str, value: object, line: bytes) -> bytes:
    """Returns the text of a field; `line` is a line feed with its indentation."""
    text = bytearray()
    _append_field(text, name, value, line)
    return bytes(text)


def value_text(value: object, line: bytes) -> bytearray:
    """Returns the text of a value; an iterator yields the texts of an object's fields.

    The text grows in small steps, so that other threads run.
    """
    text = bytearray()
    _append(text, value, line)
    return text


def _append(text: bytearray, value: object, line: bytes) -> None:
    inner = line + b"\t"
    before = b"{" + inner
    if isinstance(value, Iterator):
        for field in value:
            text += before
            text += field
            before = b"," + inner
    elif not isinstance(value, Mapping):
        text += _one_line(value)
        return
    elif all(key.isdecimal() for key in value):
        text += _one_line({key: value[key] for key in sorted(value, key=int)})
        return
    else:
        for name in sorted(name for name in value if value[name] is not None):
            text += before
            _append_field(text, name, value[name], inner)
            before = b"," + inner
    text += b"{}" if before.startswith(b"{") else line + b"}"


def _append_field(text: bytearray, name: str, value: object, line: bytes) -> None:
    text += _one_line(name)
    text += b":"
    if isinstance(value, str | int):
        text += _one_line(value)
    else:
        _append(text, value, line)


def _one_line(value: object) -> bytes:
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:
        text = b"\xff"
    # Its escapes can also hold strings of invalid Unicode.
    return text if text.isascii() else json.dumps(value, separators=(",", ":")).encode("ascii")
