"""Checks of the values that a program gives to a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import TypeAlias

from rocketpy_broker.client.errors import ClientError
from rocketpy_broker.client.group_admin import NAMED_TARGETS
from rocketpy_broker.messages.outgoing_message import OutgoingMessage, WaitArguments, fault_of_wait
from rocketpy_broker.runtime.clock import SystemClock

BYTES = bytes | bytearray | memoryview
Body: TypeAlias = str | bytes | bytearray | memoryview


def outgoing(
    bodies: Iterable[object], tags: object, keys: object, properties: object, queue_id: object
) -> list[OutgoingMessage]:
    """Returns a message for each body.

    Raises ClientError for a value of a wrong type and for properties that delay a message.
    """
    key_list = [keys] if isinstance(keys, str) else keys
    if not isinstance(key_list, Sequence) or not all(isinstance(key, str) for key in key_list):
        raise wrong("keys", keys, "a str or a list of them")
    if not (tags is None or isinstance(tags, str)):
        raise wrong("tags", tags, "a str or None")
    if not isinstance(properties, Mapping):
        raise wrong("properties", properties, "a dict of str")
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise wrong(f"property {name!r}", value, "str")
    now_ms = SystemClock().now_ms()
    instead = WaitArguments("delay_level", "deliver_at", "send_transaction")
    fault = fault_of_wait(properties, now_ms, instead)
    if fault is not None:
        raise ClientError(fault)
    if not (queue_id is None or isinstance(queue_id, int)):
        raise wrong("queue_id", queue_id, "an int or None")
    return [
        OutgoingMessage(_body(body), tags, tuple(key_list), properties, queue_id) for body in bodies
    ]


def check_kind(name: str, value: object, kind: type | UnionType, accepted: str) -> None:
    """Raises ClientError for a value of another type."""
    if not isinstance(value, kind):
        raise wrong(name, value, accepted)


def check_count(count: object) -> None:
    """Raises ClientError unless the count of messages is None or a whole number from 0 on."""
    if not (count is None or (isinstance(count, int) and count >= 0)):
        raise wrong("count", count, "0 or more, or None")


def check_delay(delay_level: object, deliver_at: object) -> None:
    """Raises ClientError for a value of a wrong type."""
    if not isinstance(delay_level, int):
        raise wrong("delay_level", delay_level, "an int")
    if not (deliver_at is None or isinstance(deliver_at, datetime)):
        raise wrong("deliver_at", deliver_at, "a datetime with a time zone, or None")


def check_time(time: datetime | None) -> None:
    """Raises ClientError for a time without a time zone, or a value of a wrong type."""
    if not (time is None or isinstance(time, datetime)):
        raise wrong("the time", time, "a datetime with a time zone, or None")
    if time is not None and time.tzinfo is None:
        raise ClientError(f"the time {time.isoformat()} has no time zone; give one")


def check_start(start: str, *, is_committing: bool) -> None:
    """Raises ClientError for an unknown start, or for 'latest' without commits."""
    if start not in NAMED_TARGETS:
        raise wrong("start", start, " or ".join(map(repr, NAMED_TARGETS)))
    if start == "latest" and not is_committing:
        raise ClientError("start='latest' needs commit=True: it commits the ends of the queues")


def _body(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise ClientError("a body is not valid Unicode; send it as bytes") from error
    if isinstance(body, BYTES):
        return bytes(body)
    raise wrong("body", body, "str or bytes, or an iterable of them")


def wrong(name: str, value: object, accepted: str) -> ClientError:
    """Returns the error for a value of an argument."""
    return ClientError(f"{name} is {value!r}, accepted is {accepted}")
