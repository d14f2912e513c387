"""Checks of the messages that a program gives to LocalBroker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from rocketpy_broker.client.messages.model import OutgoingMessage, WaitArguments, fault_of_wait
from rocketpy_broker.embedded.process import LocalBrokerError
from rocketpy_broker.runtime.clock import SystemClock

BYTES = bytes | bytearray | memoryview
Body: TypeAlias = str | bytes | bytearray | memoryview


def outgoing(
    bodies: Iterable[object], tags: object, keys: object, properties: object, queue_id: object
) -> list[OutgoingMessage]:
    """Returns a message for each body.

    Raises LocalBrokerError for a value of a wrong type and for properties that delay a message.
    """
    key_list = [keys] if isinstance(keys, str) else keys
    if not isinstance(key_list, Sequence) or not all(isinstance(key, str) for key in key_list):
        raise _wrong("keys", keys, "a str or a list of them")
    if not (tags is None or isinstance(tags, str)):
        raise _wrong("tags", tags, "a str or None")
    if not isinstance(properties, Mapping):
        raise _wrong("properties", properties, "a dict of str")
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise _wrong(f"property {name!r}", value, "str")
    now_ms = SystemClock().now_ms()
    instead = WaitArguments("delay_level", "deliver_at", "send_transaction")
    fault = fault_of_wait(properties, now_ms, instead)
    if fault is not None:
        raise LocalBrokerError(fault)
    if not (queue_id is None or isinstance(queue_id, int)):
        raise _wrong("queue_id", queue_id, "an int or None")
    return [
        OutgoingMessage(_body(body), tags, tuple(key_list), properties, queue_id) for body in bodies
    ]


def check_delay(delay_level: object, deliver_at: object) -> None:
    """Raises LocalBrokerError for a value of a wrong type."""
    if not isinstance(delay_level, int):
        raise _wrong("delay_level", delay_level, "an int")
    if not (deliver_at is None or isinstance(deliver_at, datetime)):
        raise _wrong("deliver_at", deliver_at, "a datetime with a time zone, or None")


def _body(body: object) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise LocalBrokerError("a body is not valid Unicode; send it as bytes") from error
    if isinstance(body, BYTES):
        return bytes(body)
    raise _wrong("body", body, "str or bytes, or an iterable of them")


def _wrong(name: str, value: object, accepted: str) -> LocalBrokerError:
    return LocalBrokerError(f"{name} is {value!r}, accepted is {accepted}")
