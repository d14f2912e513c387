"""Conversion between dataclasses and configuration file entries.

Unknown fields are kept and written back, since another version of RocketMQ may need them. A missing
or null field gets the dataclass's default.
Source: reader tolerance of fastjson, docs/design/storage.md section 11.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field: `name` in the file, `attribute` of the dataclass; `parse` raises ValueError."""

    name: str
    attribute: str
    parse: Callable[[object], object]


def decode_fields(
    fields: Sequence[JsonField], entry: object, name: str | None = None
) -> dict[str, Any]:
    """Returns the dataclass's arguments; `extra` holds unknown fields. Raises ValueError.

    The field `name` is left out, since it repeats the entry's key.
    """
    rest = dict(as_object(entry))
    if name is not None:
        rest.pop(name, None)
    arguments: dict[str, Any] = {}
    for field in fields:
        value = rest.pop(field.name, None)
        if value is not None:
            arguments[field.attribute] = field.parse(value)
    return {**arguments, "extra": rest}


def encode_fields(fields: Sequence[JsonField], value: object) -> dict[str, object]:
    """Returns the entry of the file, without the unknown fields."""
    entry: dict[str, object] = {}
    for field in fields:
        held = getattr(value, field.attribute)
        entry[field.name] = dict(held) if isinstance(held, Mapping) else held
    return entry


def as_object(value: object) -> Mapping[str, Any]:
    """Returns a JSON object; null becomes an empty one. Raises ValueError."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise ValueError(f"{_short(value)} stands where an object should")


def as_texts(value: object) -> Mapping[str, str]:
    """Returns a JSON object of strings. Raises ValueError."""
    return {key: as_text(item) for key, item in as_object(value).items()}


def as_text(value: object) -> str:
    """Returns a string from a string, number or boolean. Raises ValueError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"{_short(value)} stands where a string should")


def as_long(value: object) -> int:
    """Returns a 64-bit integer from a number or a string. Raises ValueError."""
    return _as_int(value, 64)


def as_int(value: object) -> int:
    """Returns a 32-bit integer from a number or a string. Raises ValueError."""
    return _as_int(value, 32)


def _as_int(value: object, bits: int) -> int:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        number = int(value)
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return number
    raise ValueError(f"{_short(value)} stands where an integer of {bits} bits should")


def as_bool(value: object) -> bool:
    """Returns a boolean from a boolean, 0, 1 or a string of one. Raises ValueError."""
    found = _BOOLEANS.get(as_text(value).lower())
    if found is None:
        raise ValueError(f"{_short(value)} stands where true or false should")
    return found


def _short(value: object) -> str:
    return f"{value!r:.40}"
