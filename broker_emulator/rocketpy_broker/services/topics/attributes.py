"""Attributes of a topic, and their changes by `+name` and `-name`.

A stored attribute has its name without the sign. Attributes of other versions of RocketMQ are kept
unchanged, and can be removed. This broker does not support compaction, batch queues and lite
topics. It refuses their values in requests, and keeps the values written by RocketMQ.
Source: TopicAttributes, AttributeUtil, docs/design/storage.md section 11.2,
docs/design/broker_behaviour.md section 9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketpy_broker.errors import TopicAttributeError
from rocketpy_proto.model import MESSAGE_TYPE, MESSAGE_TYPES

QUEUE_TYPE, CLEANUP_POLICY = "queue.type", "cleanup.policy"
RESERVE_TIME = "reserve.time"
ADD, REMOVE = "+", "-"
# Changes of one request; four names exist.
CHANGES_MAX = 16
RESERVE_TIME_MIN, RESERVE_TIME_END = -1, 1 << 63
NUMBER_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class Choice:
    """An attribute with a set of values; `others` are RocketMQ's values without support here."""

    values: tuple[str, ...]
    others: tuple[str, ...] = ()
    is_changeable: bool = True


_CHOICES = {
    QUEUE_TYPE: Choice(("SimpleCQ",), ("BatchCQ",), is_changeable=False),
    CLEANUP_POLICY: Choice(("DELETE",), ("COMPACTION",), is_changeable=False),
    MESSAGE_TYPE: Choice(MESSAGE_TYPES, ("LITE",)),
}
NAMES = tuple(sorted({*_CHOICES, RESERVE_TIME}))


def parse_changes(text: str) -> dict[str, str]:
    """Returns the changes of a text such as `+name=value,-name`. Raises TopicAttributeError."""
    changes: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, value = part.partition("=")
        if key in changes:
            raise TopicAttributeError(f"attribute {_short(key)} is named twice; name it once")
        changes[key] = value
    return changes


def altered(old: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Returns the attributes after `changes`; other attributes stay. A new topic has no `old`.

    Raises TopicAttributeError.
    """
    if len(changes) > CHANGES_MAX:
        raise TopicAttributeError(
            f"{len(changes)} changes of attributes, accepted are {CHANGES_MAX} or fewer"
        )
    attributes, seen = dict(old or {}), set[str]()
    for key in sorted(changes):
        sign, name = key[:1], key[1:]
        if sign not in {ADD, REMOVE} or not name:
            raise TopicAttributeError(
                f"attribute {_short(key)} has a wrong form; +name sets one, -name removes it"
            )
        if name in seen:
            raise TopicAttributeError(f"attribute {_short(name)} is named twice; name it once")
        seen.add(name)
        if sign == ADD:
            _check(name, changes[key])
            _check_changeable(name, attributes.get(name), changes[key])
            attributes[name] = changes[key]
        else:
            _check_removable(name, old)
            del attributes[name]
    return attributes


def _check(name: str, value: str) -> None:
    """Raises TopicAttributeError for an unknown name or value."""
    if name == RESERVE_TIME:
        digits = value.removeprefix("-")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) <= NUMBER_DIGITS_MAX
        if not is_number or not RESERVE_TIME_MIN <= int(value) < RESERVE_TIME_END:
            raise TopicAttributeError(
                f"{name} is {_short(value)}, accepted is a number of ms, or -1 for the broker's "
                "own reserve time"
            )
        return
    choice = _CHOICES.get(name)
    if choice is None:
        raise TopicAttributeError(f"unsupported key: {_short(name)}; accepted are {_list(NAMES)}")
    if value in choice.others:
        raise TopicAttributeError(
            f"{name} is {value!r}, which this broker does not support; accepted is "
            f"{_list(choice.values)}"
        )
    if value not in choice.values:
        raise TopicAttributeError(f"{name} is {_short(value)}, accepted is {_list(choice.values)}")


def _check_changeable(name: str, old: str | None, new: str) -> None:
    choice = _CHOICES.get(name)
    if old is not None and old != new and choice is not None and not choice.is_changeable:
        raise TopicAttributeError(
            f"{name} is {old!r} since the topic was created, and cannot change"
        )


def _check_removable(name: str, old: Mapping[str, str] | None) -> None:
    if old is None:
        raise TopicAttributeError(
            f"attribute {_short(name)} cannot be removed from a topic that is being created"
        )
    if name not in old:
        raise TopicAttributeError(f"the topic has no attribute {_short(name)} to remove")
    choice = _CHOICES.get(name)
    if choice is not None and not choice.is_changeable:
        raise TopicAttributeError(f"{name} is {old[name]!r}, and cannot change")


def _list(values: tuple[str, ...]) -> str:
    return ", ".join(values)


def _short(text: str) -> str:
    return f"{text!r:.100}"
