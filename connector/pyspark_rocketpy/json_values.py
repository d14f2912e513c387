"""Strict reading of JSON from users and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from rocketpy_proto.texts import is_unicode

NUMBER_MAX = (1 << 63) - 1
# Queue ids have 32 bits in every protocol.
QUEUE_ID_MAX = (1 << 31) - 1
SHOWN_MAX = 100


class RepeatedNameError(ValueError):
    """A name that is repeated in one JSON object; the error's text is the name."""


def parse_json(text: str) -> object:
    """Returns the value. Raises RepeatedNameError, and ValueError for text that is not JSON."""
    try:
        return json.loads(
            text, object_pairs_hook=_without_repetition, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise RepeatedNameError(repr(next(name for name in names if names.count(name) > 1)))
    return found


def _refuse_constant(name: str) -> NoReturn:
    """Raises ValueError, since NaN and the infinities are Python's, not JSON's."""
    raise ValueError(f"{name} is not JSON")


def json_object(value: object) -> Mapping[str, Any]:
    """Returns the value, which has to be an object. Raises ValueError."""
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{shown(value)} is not a JSON object")


def unicode_text(value: object) -> str:
    """Returns a text of valid Unicode. Raises ValueError."""
    if isinstance(value, str) and is_unicode(value):
        return value
    raise ValueError(f"{shown(value)} is not a text of valid Unicode")


def whole(value: object, low: int = -NUMBER_MAX - 1, high: int = NUMBER_MAX) -> int:
    """Returns a whole number within the bounds. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise ValueError(f"{shown(value)} is not a whole number from {low} to {high}")


@lru_cache(maxsize=4_096)
def queue_id(text: str) -> int:
    """Returns the queue id of a text without sign or leading zero. Raises ValueError."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(QUEUE_ID_MAX))
    if not is_number or text != str(int(text)) or int(text) > QUEUE_ID_MAX:
        raise ValueError(f"{shown(text)} is not a queue id from 0 to {QUEUE_ID_MAX}")
    return int(text)


def shown(value: object) -> str:
    """Returns the first characters of a value, for an error text."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
