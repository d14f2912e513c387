"""Conversion between configurations and the entries of their files.

Unknown fields are kept and written back, since another version of RocketMQ may need them. A missing
or null field gets the configuration's default.
Source: reader tolerance of fastjson, docs/design/storage.md section 11.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from rocketpy_proto.struct_types import Int32, Int64

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class JsonFields(Generic[ConfigT]):
    """The fields of a configuration, by their names in the file."""

    def __init__(self, kind: type[ConfigT]) -> None:
        fields = msgspec.structs.fields(kind)
        self._kind = kind
        self._parsers = [(each.encode_name, each.name, _PARSERS[each.type]) for each in fields]
        self._names = [each.encode_name for each in fields]
        self._values = attrgetter(*(each.name for each in fields))

    def decode(self, entry: object, *key: str) -> tuple[ConfigT, Mapping[str, object]]:
        """Returns the configuration of an entry, and the unknown fields. Raises ValueError.

        `key` is the value of the first field, which repeats the entry's key.
        """
        rest = {name: value for name, value in as_object(entry).items() if value is not None}
        for name in self._names[: len(key)]:
            rest.pop(name, None)
        values = {
            attribute: parse(rest.pop(name))
            for name, attribute, parse in self._parsers
            if name in rest
        }
        return self._kind(*key, **values), rest

    def encode(self, config: ConfigT, extra: Mapping[str, object]) -> dict[str, object]:
        """Returns the entry of the file."""
        return {**extra, **dict(zip(self._names, self._values(config), strict=True))}


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


# Each raises ValueError.
_PARSERS: Mapping[object, Callable[[object], object]] = {
    Int32: as_int,
    Int64: as_long,
    bool: as_bool,
    str: as_text,
    Mapping[str, str]: as_texts,
    Mapping[str, object]: as_object,
}
