"""JSON text in fastjson's layout, as in RocketMQ's configuration files.

One field per line, by name, without nulls. Arrays, and maps with queue ids or levels as keys, are
on one line.
Source: RemotingSerializable.toJson(true), docs/design/storage.md section 11.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

# ASCII with escapes, so that a string of invalid Unicode can be written, too.
_ENCODER = json.JSONEncoder(separators=(",", ":"))
# Keys per encoder call; other threads wait for a call.
ENCODED_KEYS = 500


def name_text(name: str) -> str:
    """Returns the text before a field's value: the quoted name and a colon."""
    return _ENCODER.encode(name) + ":"


def field_text(name: str, value: object, line: str) -> str:
    """Returns the text of a field; `line` is a line feed with its indentation."""
    return name_text(name) + _value_text(value, line)


def _value_text(value: object, line: str) -> str:
    if not isinstance(value, Mapping):
        return _ENCODER.encode(value)
    if all(key.isdecimal() for key in value):
        return _numbered_text(value)
    inner = line + "\t"
    fields = [field_text(key, value[key], inner) for key in sorted(value) if value[key] is not None]
    return f"{{{inner}{f',{inner}'.join(fields)}{line}}}" if fields else "{}"


def _numbered_text(value: Mapping[str, object]) -> str:
    keys = sorted(value, key=int)
    parts = [
        _ENCODER.encode({key: value[key] for key in keys[start : start + ENCODED_KEYS]})
        for start in range(0, len(keys), ENCODED_KEYS)
    ]
    return f"{{{','.join(part[1:-1] for part in parts)}}}"
