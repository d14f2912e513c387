"""JSON in fastjson's shape, as RocketMQ writes its configuration. Holds no state.

A field a line, by name, without nulls; arrays, and maps from queue ids or levels, on one line.
Source: RemotingSerializable.toJson(true), docs/design/storage.md section 11.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

# Escapes keep a file readable for everyone, also where a string is no valid Unicode.
_ENCODER = json.JSONEncoder(separators=(",", ":"))
# Encoded by one call, for which other threads wait.
ENCODED_KEYS = 500


def name_text(name: str) -> str:
    """What comes before a field's value."""
    return _ENCODER.encode(name) + ":"


def field_text(name: str, value: object, line: str) -> str:
    """Returns a field; `line` begins a line at its indentation."""
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
