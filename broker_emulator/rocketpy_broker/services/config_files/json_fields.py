"""Conversion between dataclasses and configuration file entries.

Unknown fields are kept and written back, since another version of RocketMQ may need them. A missing
or null field gets the dataclass's default.
Source: reader tolerance of fastjson, docs/design/storage.md section 11.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class JsonFields:
    """The fields of an entry: each one's name in the file, attribute and parser.

    A parser raises ValueError.
    """

    def __init__(self, *fields: tuple[str, str, Callable[[object], object]]) -> None:
        self._fields = fields
        self._names = [name for name, _, _ in fields]
        self._values = attrgetter(*(attribute for _, attribute, _ in fields))

    def decode(self, entry: object, key: str | None = None) -> dict[str, Any]:
        """Returns the dataclass's arguments; `extra` holds unknown fields. Raises ValueError.

        The field `key` is left out, since it repeats the entry's key.
        """
        rest = {name: value for name, value in as_object(entry).items() if value is not None}
        if key is not None:
            rest.pop(key, None)
        arguments: dict[str, Any] = {}
        for name, attribute, parse in self._fields:
            if name in rest:
                arguments[attribute] = parse(rest.pop(name))
        return {**arguments, "extra": rest}

    def encode(self, value: object) -> dict[str, object]:
        """Returns the entry of the file, without the unknown fields."""
        return dict(zip(self._names, self._values(value), strict=True))


def as_object(value: object) -> Mapping[str, Any]:
    """Returns a JSON object; null becomes an empty one. Raises ValueError."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise ValueError(f"{_short(value)} is no object")


def as_texts(value: object) -> Mapping[str, str]:
    """Returns a JSON object of strings. Raises ValueError."""
    return {key: as_text(item) for key, item in as_object(value).items()}


def as_text(value: object) -> str:
    """Returns a string from a string, number or boolean. Raises ValueError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"{_short(value)} is no string")


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
    raise ValueError(f"{_short(value)} is no integer of {bits} bits")


def as_bool(value: object) -> bool:
    """Returns a boolean from a boolean, 0, 1 or a string of one. Raises ValueError."""
    found = _BOOLEANS.get(as_text(value).lower())
    if found is None:
        raise ValueError(f"{_short(value)} is neither true nor false")
    return found


def _short(value: object) -> str:
    return f"{value!r:.40}"
